package objects_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tributary/pipeline/objects"
	"tributary/pipeline/pipelinetest"
)

// names returns the names of objects below a path.
func names(t *testing.T, s *objects.Bucket, path string) []string {
	t.Helper()
	list, err := s.List(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, o := range list {
		if age := time.Since(o.Modified); age < -time.Minute || age > time.Minute {
			t.Errorf("%s was modified %v ago", o.Name, age)
		}
		out = append(out, o.Name)
	}
	slices.Sort(out)
	return out
}

// A bucket keeps objects, below a prefix as well.
func TestBucketKeepsObjects(t *testing.T) {
	t.Parallel()
	store := pipelinetest.NewObjectStore(t)
	for name, s := range map[string]*objects.Bucket{
		"bucket":             {Client: store.Client, Name: pipelinetest.Bucket, Logger: slog.New(slog.DiscardHandler)},
		"prefix in a bucket": {Client: store.Client, Name: pipelinetest.Bucket, Prefix: "team a/b", Logger: slog.New(slog.DiscardHandler)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if got := names(t, s, "x"); len(got) != 0 {
				t.Errorf("a new store has %v", got)
			}
			for name, text := range map[string]string{"x/1/one": "1", "x/1/two": "2", "x/10/one": "3", "y": "4"} {
				if err := s.Put(ctx, name, []byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Put(ctx, "x/1/two", []byte("again")); err != nil {
				t.Fatal(err)
			}
			if data, err := s.Get(ctx, "x/1/two"); err != nil || string(data) != "again" {
				t.Errorf("read %q, %v", data, err)
			}
			if diff := cmp.Diff([]string{"x/1/one", "x/1/two"}, names(t, s, "x/1")); diff != "" {
				t.Errorf("below x/1 (-want +got):\n%s", diff)
			}
			for range 2 {
				if err := s.Delete(ctx, "x/1/two"); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Get(ctx, "x/1/two"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("read an object that was deleted: %v", err)
			}
			if diff := cmp.Diff([]string{"x/1/one", "x/10/one"}, names(t, s, "x")); diff != "" {
				t.Errorf("below x (-want +got):\n%s", diff)
			}
		})
	}
}

// A bucket repeats what the store does not take while it is away, and says what to do about the rest.
func TestBucketRepeatsAndExplains(t *testing.T) {
	t.Parallel()
	store := pipelinetest.NewObjectStore(t)
	var log strings.Builder
	b := &objects.Bucket{
		Client: store.Client, Name: pipelinetest.Bucket, Prefix: "p", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Cures: objects.Cures{Rights: "s3:GetObject", Again: "wait"},
	}
	tries := 0
	store.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if tries++; tries == 1 {
			pipelinetest.RefuseObject(w, http.StatusServiceUnavailable, "SlowDown")
			return
		}
		next.ServeHTTP(w, r)
	})
	if err := b.Put(t.Context(), "a", []byte("1")); err != nil || tries != 2 {
		t.Errorf("%d tries: %v", tries, err)
	}
	if !strings.Contains(log.String(), "trying again") {
		t.Errorf("log: %s", log.String())
	}
	store.Intercept(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		pipelinetest.RefuseObject(w, http.StatusForbidden, "AccessDenied")
	})
	if _, err := b.Get(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "s3://"+pipelinetest.Bucket+"/p: "+store.URL+" says AccessDenied: refused: check the credentials, which need the rights s3:GetObject") {
		t.Errorf("denied: %v", err)
	}
}
