package pipelinetest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// ObjectStore is an object store with the S3 protocol and one bucket. It runs in this process until the test ends.
type ObjectStore struct {
	URL    string
	Client *minio.Client // does not repeat requests

	intercept atomic.Pointer[Intercept]
}

// Intercept handles a request instead of the store, or passes it on to next. It is called concurrently.
type Intercept func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Keys are credentials of an [ObjectStore], which accepts any; Bucket is its bucket.
const (
	AccessKey = "AKIATRIBUTARY"
	SecretKey = "a secret of the store"
	Bucket    = "telemetry"
)

// NewObjectStore starts an object store.
func NewObjectStore(tb testing.TB) *ObjectStore {
	tb.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(Bucket); err != nil {
		tb.Fatal(err)
	}
	s := &ObjectStore{}
	store := gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.intercept.Load(); f != nil {
			(*f)(w, r, store)
			return
		}
		store.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	s.URL = server.URL
	transport := &http.Transport{DisableCompression: true}
	tb.Cleanup(transport.CloseIdleConnections)
	client, err := minio.New(server.Listener.Addr().String(), &minio.Options{
		Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Region: "us-east-1", MaxRetries: 1, Transport: transport,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.Client = client
	return s
}

// Intercept makes f handle all requests from now on; nil for none.
func (s *ObjectStore) Intercept(f Intercept) {
	if f == nil {
		s.intercept.Store(nil)
		return
	}
	s.intercept.Store(&f)
}

// RefuseObject answers like a store that refuses a request.
func RefuseObject(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<Error><Code>" + code + "</Code><Message>refused</Message></Error>")) // the client may be gone
}
