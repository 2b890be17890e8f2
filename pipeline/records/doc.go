// Package records is a raw record as a message of the broker: the producer's side ([Message], [ClaimMessage]), its
// inverse ([Read]), and the reasons for which a record that cannot be read becomes a dead letter ([Reason]).
package records
