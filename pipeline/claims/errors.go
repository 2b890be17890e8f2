package claims

import "errors"

// The permanent errors of a large record that occur before normalization. Each makes the record a dead letter. Their
// texts repeat nothing of the record.
var (
	// ErrMalformed: the claim check is not in the form of [Claim.String], or comes with a body.
	ErrMalformed = errors.New("bad claim")
	// ErrMissing: the bucket lacks the object that a claim check names.
	ErrMissing = errors.New("claimed object is missing")
	// ErrSize: the object has another size than its claim check.
	ErrSize = errors.New("claimed object has another size")
	// ErrDigest: the object has other bytes than its claim check names.
	ErrDigest = errors.New("claimed object has another digest")
)
