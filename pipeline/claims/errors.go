package claims

import "errors"

// The permanent errors of a raw record that no normalizer sees. Each makes the record a
// dead letter. Their texts repeat nothing of the record.
var (
	// ErrMalformed: the claim check of a large record is not one of [Claim.String], or
	// comes with a body.
	ErrMalformed = errors.New("bad claim")
	// ErrMissing: the bucket does not hold the object that a claim check names.
	ErrMissing = errors.New("claimed object is missing")
	// ErrSize: the object that a claim check names has another size.
	ErrSize = errors.New("claimed object has another size")
	// ErrDigest: the object that a claim check names has other bytes.
	ErrDigest = errors.New("claimed object has another digest")
)
