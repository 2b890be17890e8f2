package objects

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Bucket stores objects (bytes under names) in a bucket of a store with the S3 protocol, or below a prefix of one. A
// name is a path with slashes. Errors name the cure and contain no credentials. Safe for concurrent use.
type Bucket struct {
	Client *minio.Client // must not repeat requests
	Name   string
	Prefix string        // of the names of all objects, without a slash at either end; empty for none
	Limit  time.Duration // how long to repeat a request while the store is away; 0 for ever
	Logger *slog.Logger  // logs repeated requests
	Cures  Cures
}

// Cures are the cures that errors of a [Bucket] name.
type Cures struct {
	Rights  string // the rights that the credentials need
	Again   string // for an error that another try may not have
	Smaller string // for an object that is too large for the store
}

// The waits between two tries of a request.
const (
	minPause = 200 * time.Millisecond
	maxPause = 10 * time.Second
)

// String returns the address of the objects.
func (b *Bucket) String() string { return "s3://" + path.Join(b.Name, b.Prefix) }

// key is the name of an object in the bucket.
func (b *Bucket) key(name string) string { return path.Join(b.Prefix, name) }

func (b *Bucket) core() minio.Core { return minio.Core{Client: b.Client} }

// Put stores an object, replacing one of the same name, in one request: no part of an upload can be left behind.
func (b *Bucket) Put(ctx context.Context, name string, data []byte) error {
	_, err := b.PutIf(ctx, name, data, minio.PutObjectOptions{})
	return err
}

// PutIf is Put under the condition in opts, and returns the ETag of the object; see [Changed].
func (b *Bucket) PutIf(ctx context.Context, name string, data []byte, opts minio.PutObjectOptions) (etag string, err error) {
	err = b.request(ctx, func() error {
		info, err := b.core().PutObject(ctx, b.Name, b.key(name), bytes.NewReader(data), int64(len(data)), "", "", opts)
		etag = info.ETag
		return err
	})
	return etag, err
}

// Get returns an object; [fs.ErrNotExist] if there is none.
func (b *Bucket) Get(ctx context.Context, name string) ([]byte, error) {
	data, _, err := b.GetTagged(ctx, name)
	return data, err
}

// GetTagged is Get, and also returns the ETag of the object.
func (b *Bucket) GetTagged(ctx context.Context, name string) (data []byte, etag string, err error) {
	err = b.request(ctx, func() error {
		body, info, _, err := b.core().GetObject(ctx, b.Name, b.key(name), minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer body.Close()
		data, err = io.ReadAll(body)
		etag = info.ETag
		return err
	})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, "", fmt.Errorf("%s: %w: %s", b, fs.ErrNotExist, name)
	}
	return data, etag, err
}

// List returns the objects below a path, in any order.
func (b *Bucket) List(ctx context.Context, path string) ([]Object, error) {
	return b.ListNames(ctx, path+"/")
}

// ListNames returns the objects whose names begin with begin.
func (b *Bucket) ListNames(ctx context.Context, begin string) (list []Object, err error) {
	prefix := begin
	if b.Prefix != "" {
		prefix = b.Prefix + "/" + begin
	}
	err = b.request(ctx, func() error {
		list = nil
		for o := range b.Client.ListObjectsIter(ctx, b.Name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			if o.Err != nil {
				return o.Err
			}
			list = append(list, Object{strings.TrimPrefix(strings.TrimPrefix(o.Key, b.Prefix), "/"), o.LastModified, o.Size})
		}
		return nil
	})
	return list, err
}

// Delete removes an object if it exists.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	return b.request(ctx, func() error {
		return b.Client.RemoveObject(ctx, b.Name, b.key(name), minio.RemoveObjectOptions{})
	})
}

// Changed reports whether err means that the condition of [Bucket.PutIf] did not hold.
func Changed(err error) bool {
	r, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && (r.StatusCode == http.StatusPreconditionFailed || r.Code == minio.NoSuchKey)
}

// request makes a request, and repeats it while the store is away. Its error names the cure.
func (b *Bucket) request(ctx context.Context, do func() error) error {
	began := time.Now()
	for wait := minPause; ; wait = min(2*wait, maxPause) {
		err := do()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !away(err) || b.Limit > 0 && time.Since(began)+wait > b.Limit:
			return b.explain(err)
		}
		b.Logger.WarnContext(ctx, "the object store does not accept a request: trying again", "in", wait, "error", b.explain(err))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// away reports whether a request may succeed later: the store did not answer, or is busy.
func away(err error) bool {
	if r, ok := errors.AsType[minio.ErrorResponse](err); ok {
		switch r.StatusCode {
		case http.StatusNotImplemented:
			return false
		case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
			return true
		}
		return r.StatusCode >= http.StatusInternalServerError
	}
	_, network := errors.AsType[net.Error](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	return (network || errors.Is(err, io.ErrUnexpectedEOF)) && !certificate && !errors.Is(err, http.ErrSchemeMismatch)
}

// explain adds the cure to an error. The text has no credentials.
func (b *Bucket) explain(err error) error {
	endpoint := b.Client.EndpointURL()
	r, answered := errors.AsType[minio.ErrorResponse](err)
	network, unanswered := errors.AsType[*url.Error](err)
	switch {
	case Changed(err):
		return err
	case unanswered:
		return fmt.Errorf("%s: no answer from %s: %w: check AWS_ENDPOINT_URL, and %s", b, endpoint, network.Err, b.Cures.Again)
	case !answered:
		return fmt.Errorf("%s: %w", b, err)
	}
	cure := b.Cures.Again
	switch {
	case r.Code == minio.NoSuchBucket:
		cure = "create the bucket, or name another"
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized:
		cure = "check the credentials, which need the rights " + b.Cures.Rights
	case r.StatusCode == http.StatusMovedPermanently, r.Code == minio.AuthorizationHeaderMalformed:
		cure = "set AWS_REGION to the region of the bucket"
	case r.Code == minio.EntityTooLarge:
		cure = b.Cures.Smaller
	case r.StatusCode == http.StatusNotImplemented:
		cure = "name a store with conditional writes"
	}
	return fmt.Errorf("%s: %s says %s: %w: %s", b, endpoint, r.Code, err, cure)
}
