package export

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"
)

// ErrOtherRun means that another export has begun to write to the same place since this one began.
var ErrOtherRun = errors.New("another export writes here: stop one of them")

// Bucket is where in an object store of S3's protocol an export goes. The store says what is wrong with the
// bucket or the credentials when [Run] begins.
type Bucket struct {
	Client *minio.Client
	Name   string
	Prefix string        // of the names of all objects, without a slash at its ends; empty for none
	Limit  time.Duration // how long a request is repeated while the store is away; 0 is without end
}

// bucket is a bucket as the [place] of an export.
type bucket struct {
	Bucket
	cell    int
	log     *slog.Logger
	etag    string // of the manifest, empty for none
	checked bool   // whether the store has conditional writes
}

// Requests to a store.
const (
	parallelPuts = 8
	minPause     = 200 * time.Millisecond
	maxPause     = 10 * time.Second
)

// String is the address of the objects.
func (b *bucket) String() string { return "s3://" + path.Join(b.Name, b.Prefix) }

func (b *bucket) manifest() string { return manifestName(b.cell) }

func (b *bucket) key(name string) string { return path.Join(b.Prefix, name) }

func (b *bucket) core() minio.Core { return minio.Core{Client: b.Client} }

func (b *bucket) load(ctx context.Context) (data []byte, err error) {
	err = b.request(ctx, func() error {
		body, info, _, err := b.core().GetObject(ctx, b.Name, b.key(controlDir+"/"+b.manifest()), minio.GetObjectOptions{})
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			data, b.etag = nil, ""
			return nil
		}
		if err != nil {
			return err
		}
		defer body.Close()
		data, err = io.ReadAll(body)
		b.etag = info.ETag
		return err
	})
	return data, err
}

// save replaces the manifest if it is the one that was loaded or saved last: of several exports the one that began
// last goes on. The others fail before they add the files of a span that it does not know.
func (b *bucket) save(ctx context.Context, manifest []byte) error {
	var opts minio.PutObjectOptions
	if b.etag == "" {
		opts.SetMatchETagExcept("*")
	} else {
		opts.SetMatchETag(b.etag)
	}
	err := b.saveIf(ctx, manifest, opts)
	if changed(err) { // or the answer to an earlier try was lost
		have, err := b.load(ctx)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, manifest) {
			return fmt.Errorf("%s: %w", b, ErrOtherRun)
		}
	} else if err != nil {
		return err
	}
	if b.checked {
		return nil
	}
	b.checked = true
	opts = minio.PutObjectOptions{}
	opts.SetMatchETagExcept("*") // fails, for the manifest is there
	if err := b.saveIf(ctx, manifest, opts); !changed(err) {
		if err == nil {
			b.log.WarnContext(ctx, "the object store ignores conditions of writes: make sure that one export at a time writes to the prefix", "to", b.String())
		}
		return err
	}
	return nil
}

// saveIf puts the manifest, on a condition.
func (b *bucket) saveIf(ctx context.Context, manifest []byte, opts minio.PutObjectOptions) error {
	opts.ContentType = "application/json"
	return b.request(ctx, func() error {
		info, err := b.core().PutObject(ctx, b.Name, b.key(controlDir+"/"+b.manifest()), bytes.NewReader(manifest), int64(len(manifest)), "", "", opts)
		if err == nil {
			b.etag = info.ETag
		}
		return err
	})
}

// changed reports whether the condition of a write does not hold.
func changed(err error) bool {
	r, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && (r.StatusCode == http.StatusPreconditionFailed || r.Code == minio.NoSuchKey)
}

func (b *bucket) names(ctx context.Context) (list []string, err error) {
	prefix := b.key("date=")
	err = b.request(ctx, func() error {
		list = nil
		for o := range b.Client.ListObjectsIter(ctx, b.Name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			if o.Err != nil {
				return o.Err
			}
			name := strings.TrimPrefix(strings.TrimPrefix(o.Key, b.Prefix), "/")
			if ok, _ := path.Match(partPattern, name); ok {
				list = append(list, name)
			}
		}
		return nil
	})
	return list, err
}

// add puts each file in one request: no part of an upload can be left behind. A file that is there was put by
// another run, with the same rows.
func (b *bucket) add(ctx context.Context, files []file) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelPuts)
	for _, f := range files {
		group.Go(func() error {
			var data bytes.Buffer
			if err := f.write(&data); err != nil {
				return err
			}
			var opts minio.PutObjectOptions
			opts.SetMatchETagExcept("*")
			err := b.request(ctx, func() error {
				_, err := b.core().PutObject(ctx, b.Name, b.key(f.name), bytes.NewReader(data.Bytes()), int64(data.Len()), "", "", opts)
				return err
			})
			if changed(err) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// request makes a request, again while the store is away. The error says what to do.
func (b *bucket) request(ctx context.Context, do func() error) error {
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
		b.log.WarnContext(ctx, "the object store does not take a request: trying again", "in", wait, "error", b.explain(err))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// away reports whether a request may succeed later: there was no answer, or one that the store is busy.
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

// explain adds what to do about an error. The text has no credentials.
func (b *bucket) explain(err error) error {
	endpoint := b.Client.EndpointURL()
	r, answered := errors.AsType[minio.ErrorResponse](err)
	network, unanswered := errors.AsType[*url.Error](err)
	switch {
	case changed(err):
		return err
	case unanswered:
		return fmt.Errorf("%s: no answer of %s: %w: check AWS_ENDPOINT_URL, and run the export again: it goes on where it ended", b, endpoint, network.Err)
	case !answered:
		return fmt.Errorf("%s: %w", b, err)
	}
	cure := "run the export again: it goes on where it ended"
	switch {
	case r.Code == minio.NoSuchBucket:
		cure = "create the bucket, or name another"
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized:
		cure = "check the credentials, which need the rights s3:ListBucket, s3:GetObject and s3:PutObject"
	case r.StatusCode == http.StatusMovedPermanently, r.Code == minio.AuthorizationHeaderMalformed:
		cure = "set AWS_REGION to the region of the bucket"
	case r.Code == minio.EntityTooLarge:
		cure = "export with less --span-bytes"
	case r.StatusCode == http.StatusNotImplemented:
		cure = "name a store with conditional writes"
	}
	return fmt.Errorf("%s: %s says %s: %w: %s", b, endpoint, r.Code, err, cure)
}
