// Package records converts raw records to messages of the broker ([Message], [ClaimMessage]) and back ([Read]), and
// lists the reasons for which an unreadable record becomes a dead letter ([Reason]).
package records
