package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"tributary/pipeline/objects"
)

// ErrOtherRun means that another export began to write to the same place after this one.
var ErrOtherRun = errors.New("another export writes here: stop one of them")

// bucket is a bucket as the [place] of an export. Problems with the bucket or the credentials show when [Run] begins.
type bucket struct {
	*objects.Bucket
	cell    int
	log     *slog.Logger
	etag    string // of the manifest; empty for none
	checked bool   // it is known whether the store has conditional writes
}

// parallelPuts is how many files are put at the same time.
const parallelPuts = 8

func (b *bucket) manifest() string { return manifestName(b.cell) }

func (b *bucket) load(ctx context.Context) (data []byte, err error) {
	data, b.etag, err = b.GetTagged(ctx, controlDir+"/"+b.manifest())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// save replaces the manifest if it is still the one last loaded or saved. Of several exports only the one that began
// last continues; the others fail before they add files of a span unknown to it.
func (b *bucket) save(ctx context.Context, manifest []byte) error {
	var opts minio.PutObjectOptions
	if b.etag == "" {
		opts.SetMatchETagExcept("*")
	} else {
		opts.SetMatchETag(b.etag)
	}
	err := b.saveIf(ctx, manifest, opts)
	if objects.Changed(err) { // or the answer to an earlier try was lost
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
	opts.SetMatchETagExcept("*") // must fail, because the manifest exists
	if err := b.saveIf(ctx, manifest, opts); !objects.Changed(err) {
		if err == nil {
			b.log.WarnContext(ctx, "the object store ignores conditions of writes: make sure that only one export at a time writes to the prefix", "to", b.String())
		}
		return err
	}
	return nil
}

// saveIf puts the manifest under a condition.
func (b *bucket) saveIf(ctx context.Context, manifest []byte, opts minio.PutObjectOptions) error {
	opts.ContentType = "application/json"
	etag, err := b.PutIf(ctx, controlDir+"/"+b.manifest(), manifest, opts)
	if err == nil {
		b.etag = etag
	}
	return err
}

func (b *bucket) put(ctx context.Context, name string, data []byte) error {
	return b.Put(ctx, controlDir+"/"+name, data)
}

func (b *bucket) list(ctx context.Context) (list []stored, err error) {
	for _, begin := range []string{monthFolder, dayFolder} {
		all, err := b.ListNames(ctx, begin)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			if ok, _ := path.Match(partPattern, o.Name); ok {
				list = append(list, stored{o.Name, o.Size})
			}
		}
	}
	return list, nil
}

func (b *bucket) read(ctx context.Context, name string) ([]byte, error) { return b.Get(ctx, name) }

// add puts each file in one request, so no part of an upload can be left behind. A file that already exists was put
// by another run with the same rows.
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
			_, err := b.PutIf(ctx, f.name, data.Bytes(), opts)
			if objects.Changed(err) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

func (b *bucket) remove(ctx context.Context, name string) error { return b.Delete(ctx, name) }
