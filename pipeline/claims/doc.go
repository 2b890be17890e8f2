// Package claims carries large records beside the stream: their bytes are an object in a bucket, named by its
// SHA-256, and the message has a claim check, [Claim]. [Store] puts, gets and verifies objects, and finds those that
// no record names.
//
// A claim check is a function of the bytes. Readers verify what they get, so nothing in the bucket is trusted.
package claims
