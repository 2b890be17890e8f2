package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"

	"tributary/pipeline/export"
	"tributary/pipeline/objects"
	"tributary/pipeline/pipelinetest"
)

// inBucket returns the configuration of an export to a bucket, in spans of a few events.
func inBucket(s *pipelinetest.ObjectStore) export.Config {
	return export.Config{
		Bucket: &objects.Bucket{Client: s.Client, Name: pipelinetest.Bucket, Prefix: "team a/events", Limit: time.Minute},
		Format: export.Parquet, Generation: "v1", SpanBytes: 10_000, Drain: time.Minute, Logger: quiet,
	}
}

// download copies all objects of a bucket to a folder. It fails if any upload is left behind.
func download(t *testing.T, s *pipelinetest.ObjectStore) string {
	t.Helper()
	dir := t.TempDir()
	for o := range s.Client.ListObjectsIter(t.Context(), pipelinetest.Bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		name, ok := strings.CutPrefix(o.Key, "team a/events/")
		if !ok {
			t.Fatalf("object %s is not below the prefix", o.Key)
		}
		if err := s.Client.FGetObject(t.Context(), pipelinetest.Bucket, o.Key, filepath.Join(dir, name), minio.GetObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for u := range s.Client.ListIncompleteUploads(t.Context(), pipelinetest.Bucket, "", true) {
		if minio.ToErrorResponse(u.Err).Code != minio.NoSuchUpload { // the store says that there was none
			t.Errorf("an upload of %s is left behind: %v", u.Key, u.Err)
		}
	}
	return dir
}

// names returns the names of files below a folder, without that of the control.
func names(t *testing.T, dir string) []string {
	t.Helper()
	list := files(t, dir)
	for i := range list {
		list[i] = strings.TrimPrefix(list[i], dir)
	}
	return list
}

// TestABucketHasTheFilesOfAFolder exports twice to both, with more events in between.
func TestABucketHasTheFilesOfAFolder(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one export after the other: the race detector sees nothing new in that")
	}
	js, store, dir := stream(t, 40), pipelinetest.NewObjectStore(t), t.TempDir()
	for range 2 {
		want := run(t, js, dir, export.Parquet)
		got, err := export.Run(t.Context(), js, inBucket(store))
		if err != nil || !gocmp.Equal(got, want) {
			t.Fatalf("%+v, %v, want %+v", got, err, want)
		}
		have := download(t, store)
		if diff := gocmp.Diff(names(t, dir), names(t, have)); diff != "" {
			t.Error(diff)
		}
		if diff := gocmp.Diff(rows(t, dir), rows(t, have)); diff != "" {
			t.Error(diff)
		}
		storeEvents(t, js, 40, 5)
	}
}

// TestAnExportToABucketThatEndsAtAnyRequestGoesOn lets each request of an export fail in turn, before the store does it
// and after that, so that the export ends there. The next one goes on. The objects have every event once, and
// in the same files if the span was known.
func TestAnExportToABucketThatEndsAtAnyRequestGoesOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one export after the other: the race detector sees nothing new in that")
	}
	js, dir := stream(t, 6), t.TempDir()
	run(t, js, dir, export.Parquet)
	want := rows(t, dir)
	for _, done := range []bool{false, true} {
		for n := 1; ; n++ {
			store := pipelinetest.NewObjectStore(t)
			var requests atomic.Int64
			store.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if requests.Add(1) < int64(n) {
					next.ServeHTTP(w, r)
					return
				}
				if done && requests.Load() == int64(n) {
					next.ServeHTTP(&silent{http.Header{}}, r)
				}
				pipelinetest.RefuseObject(w, http.StatusForbidden, "AccessDenied")
			})
			_, err := export.Run(t.Context(), js, inBucket(store))
			store.Intercept(nil)
			if err == nil {
				if n < 10 {
					t.Fatalf("only %d requests", requests.Load())
				}
				break
			}
			if r, err := export.Run(t.Context(), js, inBucket(store)); err != nil || r.Unreadable != 0 {
				t.Fatalf("after request %d: %+v, %v", n, r, err)
			}
			if diff := gocmp.Diff(want, rows(t, download(t, store))); diff != "" {
				t.Fatalf("after request %d:\n%s", n, diff)
			}
		}
	}
}

// silent drops an answer.
type silent struct{ header http.Header }

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) Write(p []byte) (int, error) { return len(p), nil }
func (s *silent) WriteHeader(int)             {}

// TestLostAnswersOfAStoreLoseNothing does every third request and breaks the connection instead of the answer, and
// answers others that it is busy. The export repeats them, and says why.
func TestLostAnswersOfAStoreLoseNothing(t *testing.T) {
	t.Parallel()
	js, dir, store := stream(t, 3), t.TempDir(), pipelinetest.NewObjectStore(t)
	run(t, js, dir, export.Parquet)
	var requests atomic.Int64
	store.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch requests.Add(1) % 6 {
		case 2:
			next.ServeHTTP(&silent{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		case 4:
			_, _ = io.Copy(io.Discard, r.Body)
			pipelinetest.RefuseObject(w, http.StatusServiceUnavailable, "SlowDown")
		default:
			next.ServeHTTP(w, r)
		}
	})
	var log logged
	cfg := inBucket(store)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := export.Run(t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
	store.Intercept(nil)
	if diff := gocmp.Diff(rows(t, dir), rows(t, download(t, store))); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"does not accept a request: trying again", "no answer from " + store.URL, "says SlowDown: refused: run the export again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, &log)
		}
	}
}

// logged is a log that several goroutines write to.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestOfTwoExportsTheOneThatBeganLastGoesOn stops one export at each of its writes, lets another one store everything, and
// lets the first one go on, which ends. A span that the first one had begun has the same range in the other.
func TestOfTwoExportsTheOneThatBeganLastGoesOn(t *testing.T) {
	t.Parallel()
	js := stream(t, 6)
	for n := 1; n <= 3 || !testing.Short(); n++ {
		store := pipelinetest.NewObjectStore(t)
		var writes atomic.Int64
		stopped, goOn := make(chan struct{}), make(chan struct{})
		store.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPut && writes.Add(1) == int64(n) {
				close(stopped)
				<-goOn
			}
			next.ServeHTTP(w, r)
		})
		done := make(chan error, 1)
		go func() {
			cfg := inBucket(store)
			cfg.SpanBytes = 5_000
			_, err := export.Run(t.Context(), js, cfg)
			done <- err
		}()
		select {
		case <-stopped:
		case err := <-done:
			if err != nil || n < 8 {
				t.Fatalf("an export of %d writes: %v", n-1, err)
			}
			return
		}
		last, err := export.Run(t.Context(), js, inBucket(store))
		if err != nil {
			t.Fatal(err)
		}
		close(goOn)
		if err := <-done; !errors.Is(err, export.ErrOtherRun) && writes.Load() > int64(n) {
			t.Errorf("stopped at write %d: %v", n, err)
		}
		got := rows(t, download(t, store))
		if len(got) != 12 || last.Through.In(0) != first+11 {
			t.Fatalf("stopped at write %d: %d rows, %+v", n, len(got), last)
		}
		for i := range got {
			if got[i].StreamSequence != int64(first+i) {
				t.Fatalf("stopped at write %d: row %d has sequence %d", n, i, got[i].StreamSequence)
			}
		}
	}
}

// TestAStoreWithoutConditionsOfWritesIsNamed exports to a store that ignores the conditions.
func TestAStoreWithoutConditionsOfWritesIsNamed(t *testing.T) {
	t.Parallel()
	js, store := stream(t, 12), pipelinetest.NewObjectStore(t)
	store.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Header.Del("If-Match")
		r.Header.Del("If-None-Match")
		next.ServeHTTP(w, r)
	})
	var log logged
	cfg := inBucket(store)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := export.Run(t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "make sure that only one export at a time writes to the prefix") {
		t.Errorf("not in the log: %s", &log)
	}
	if got := rows(t, download(t, store)); len(got) != 24 {
		t.Errorf("%d rows", len(got))
	}
}

// TestErrorsOfAStoreNameTheCure exports to stores that cannot be written to. No error has a secret, and nothing is
// stored.
func TestErrorsOfAStoreNameTheCure(t *testing.T) {
	t.Parallel()
	js := stream(t, 2)
	refuse := func(status int, code string) pipelinetest.Intercept {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			pipelinetest.RefuseObject(w, status, code)
		}
	}
	for name, c := range map[string]struct {
		intercept pipelinetest.Intercept
		change    func(*objects.Bucket)
		want      string
	}{
		"no bucket":       {nil, func(b *objects.Bucket) { b.Name = "nothing" }, "s3://nothing/team a/events: STORE says NoSuchBucket: The specified bucket does not exist: create the bucket, or name another"},
		"denied":          {refuse(http.StatusForbidden, "AccessDenied"), nil, "s3://telemetry/team a/events: STORE says AccessDenied: refused: check the credentials, which need the rights s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject"},
		"wrong key":       {refuse(http.StatusForbidden, "InvalidAccessKeyId"), nil, "STORE says InvalidAccessKeyId: refused: check the credentials"},
		"other region":    {refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed"), nil, "refused: set AWS_REGION to the region of the bucket"},
		"busy":            {refuse(http.StatusServiceUnavailable, "SlowDown"), func(b *objects.Bucket) { b.Limit = 1 }, "STORE says SlowDown: refused: run the export again: it goes on where it ended"},
		"no answer":       {func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }, func(b *objects.Bucket) { b.Limit = 1 }, "s3://telemetry/team a/events: no answer from STORE: "},
		"no conditions":   {refuse(http.StatusNotImplemented, "NotImplemented"), nil, "STORE says NotImplemented: refused: name a store with conditional writes"},
		"too large files": {refuse(http.StatusBadRequest, "EntityTooLarge"), nil, "STORE says EntityTooLarge: refused: export with less --span-bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := pipelinetest.NewObjectStore(t)
			store.Intercept(c.intercept)
			cfg := inBucket(store)
			if c.change != nil {
				c.change(cfg.Bucket)
			}
			_, err := export.Run(t.Context(), js, cfg)
			if want := strings.ReplaceAll(c.want, "STORE", store.URL); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			if strings.Contains(fmt.Sprint(err), pipelinetest.SecretKey) || strings.Contains(fmt.Sprint(err), pipelinetest.AccessKey) {
				t.Errorf("a secret is in %v", err)
			}
			store.Intercept(nil)
			if got := names(t, download(t, store)); len(got) != 0 {
				t.Errorf("stored: %v", got)
			}
		})
	}
	t.Run("another export", func(t *testing.T) {
		t.Parallel()
		store := pipelinetest.NewObjectStore(t)
		cfg := inBucket(store)
		if _, err := export.Run(t.Context(), js, cfg); err != nil {
			t.Fatal(err)
		}
		cfg.Format = export.JSONL
		if _, err := export.Run(t.Context(), js, cfg); !errors.Is(err, export.ErrOtherExport) || !strings.Contains(err.Error(), "s3://telemetry/team a/events has format parquet, not jsonl: name another place") {
			t.Errorf("got %v", err)
		}
	})
}

// TestAFollowingExportToABucketStoresWhatArrives ends an export while the store is away, which takes the rest when it is
// back.
func TestAFollowingExportToABucketStoresWhatArrives(t *testing.T) {
	t.Parallel()
	js, store := stream(t, 3), pipelinetest.NewObjectStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var log logged
	cfg := inBucket(store)
	cfg.Follow, cfg.Every, cfg.Bucket.Limit, cfg.Logger = true, time.Millisecond, 0, slog.New(slog.NewTextHandler(&log, nil))
	away := make(chan struct{}, 1)
	var puts atomic.Int64
	store.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "month=") && puts.Add(1) == 1 {
			away <- struct{}{}
			cancel()
			pipelinetest.RefuseObject(w, http.StatusServiceUnavailable, "SlowDown")
			return
		}
		next.ServeHTTP(w, r)
	})
	go func() {
		_, err := export.Run(ctx, js, cfg)
		done <- err
	}()
	<-away
	if err := <-done; err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	store.Intercept(nil)
	got := rows(t, download(t, store))
	cfg.Follow, cfg.Bucket.Limit = false, time.Minute
	if _, err := export.Run(t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
	if all := rows(t, download(t, store)); len(got) == 0 || len(all) != 6 {
		t.Errorf("%d rows are stored at the end, %d after another export", len(got), len(all))
	}
}
