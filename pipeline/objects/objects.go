// Package objects keeps objects in a bucket of an object store with S3's protocol.
package objects

import "time"

// Object is an entry of [Bucket.List].
type Object struct {
	Name     string
	Modified time.Time // by the clock of the store
	Size     int64
}
