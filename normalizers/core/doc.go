// Package core is what the normalizers of all vendors share: the record and its origin, the
// session that is remembered between two records, the builder that turns a vendor's drafts
// into events, and the row of the table of vendors.
//
// Start with [Vendor], the row that a vendor fills in, [Apply], which normalizes one record,
// and [Builder], which gives an event its identity, order, parent, role and size. The one
// invariant: all state is in the [Session], a vendor's part of it in its [State], so that a
// session can be encoded, decoded and carried on after any record with the same events.
//
// The rules are in README.md of package normalizers.
package core
