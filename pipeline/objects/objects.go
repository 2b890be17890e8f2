// Package objects keeps objects, which are bytes under names, in a folder or in a bucket of an object store with
// S3's protocol.
package objects

import (
	"context"
	"time"
)

// Store keeps objects. A name is a path with slashes. An error of a [Bucket] says what to do about it, and none
// has credentials. Safe for concurrent use.
type Store interface {
	// String is the address of the store.
	String() string
	// Put stores an object for good. What had the name before is replaced.
	Put(ctx context.Context, name string, data []byte) error
	// Get returns an object; the error is [io/fs.ErrNotExist] where there is none.
	Get(ctx context.Context, name string) ([]byte, error)
	// List returns the objects below a path, in any order.
	List(ctx context.Context, path string) ([]Object, error)
	// Delete removes an object, if it is there.
	Delete(ctx context.Context, name string) error
}

// Object is what a [Store] lists of an object.
type Object struct {
	Name     string
	Modified time.Time // by the clock of the store
}
