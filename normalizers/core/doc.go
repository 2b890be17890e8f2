// Package core has what the normalizers of all vendors share: the record and its origin, the session that is kept
// between two records, the builder that turns a vendor's drafts into events, and the type of a row in the table of
// vendors.
//
// Start with [Vendor], the row that a vendor fills in, [Apply], which normalizes one record, and [Builder], which
// gives an event its identity, order, parent, role and size. The one invariant: all state is in the [Session], with a
// vendor's part in its [State], so that a session can be encoded and decoded after any record and continued with the
// same events.
//
// The rules are in README.md of package normalizers.
package core
