package worker_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tributary/pipeline/broker"
	"tributary/pipeline/claims"
	"tributary/pipeline/pipelinetest"
	"tributary/pipeline/streams"
)

// describe is a description of the bytes of a claim whose chunks have a name.
func describe(claim claims.Claim, chunks string, count int, more string) *nats.Msg {
	m := nats.NewMsg("$O.CLAIMS.M." + base64Name(claim.Digest))
	m.Data = fmt.Appendf(nil, `{"name":%q,"bucket":"CLAIMS","nuid":%q,"size":%d,"chunks":%d,"digest":%q%s}`,
		claim.Digest, chunks, claim.Size, count, claims.ObjectDigest(claim), more)
	return m
}

// withHeader returns a message with one more header.
func withHeader(m *nats.Msg, name, value string) *nats.Msg {
	m.Header.Set(name, value)
	return m
}

// messageTo is a message on a subject.
func messageTo(subject, data string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = []byte(data)
	return m
}

// harm is a message of a producer against the object of a claim, whose chunks have a name.
type harm struct {
	name    string
	message func(claim claims.Claim, chunks string) *nats.Msg
	refused bool // by the stream
}

// harms are what one message of a producer, who may publish anything to $O.CLAIMS.>, could do
// to an object of another.
func harms() []harm {
	rollup := func(subject, kind string) func(claims.Claim, string) *nats.Msg {
		return func(claim claims.Claim, chunks string) *nats.Msg {
			at := strings.NewReplacer("DIGEST", base64Name(claim.Digest), "CHUNKS", chunks).Replace(subject)
			return withHeader(messageTo(at, "{}"), jetstream.MsgRollup, kind)
		}
	}
	return []harm{
		{"rollup of everything", rollup("$O.CLAIMS.M.x", "all"), true},
		{"rollup of the description", rollup("$O.CLAIMS.M.DIGEST", "sub"), true},
		{"rollup of the chunks", rollup("$O.CLAIMS.C.CHUNKS", "sub"), true},
		{"end of life", func(c claims.Claim, chunks string) *nats.Msg {
			return withHeader(describe(c, chunks, 2, ""), jetstream.MsgTTLHeader, "1s")
		}, true},
		{"schedule", func(c claims.Claim, chunks string) *nats.Msg {
			m := withHeader(messageTo("$O.CLAIMS.M.x", ""), "Nats-Schedule", "@every 1s")
			return withHeader(m, "Nats-Schedule-Target", "$O.CLAIMS.C."+chunks)
		}, true},
		{"counter", func(_ claims.Claim, chunks string) *nats.Msg {
			return withHeader(messageTo("$O.CLAIMS.C."+chunks, ""), "Nats-Incr", "1")
		}, true},
		{"atomic batch", func(_ claims.Claim, chunks string) *nats.Msg {
			m := withHeader(messageTo("$O.CLAIMS.C."+chunks, "x"), "Nats-Batch-Id", "x")
			return withHeader(withHeader(m, "Nats-Batch-Sequence", "1"), "Nats-Batch-Commit", "1")
		}, true},
		{"description of other chunks", func(c claims.Claim, _ string) *nats.Msg { return describe(c, "other", 1, "") }, false},
		{"description of a removed object", func(c claims.Claim, chunks string) *nats.Msg {
			return describe(c, chunks, 2, `,"deleted":true`)
		}, false},
		{"no description", func(c claims.Claim, _ string) *nats.Msg {
			return messageTo("$O.CLAIMS.M."+base64Name(c.Digest), "{")
		}, false},
		{"one more chunk", func(_ claims.Claim, chunks string) *nats.Msg { return messageTo("$O.CLAIMS.C."+chunks, "x") }, false},
		{"another spelling of the name", func(c claims.Claim, chunks string) *nats.Msg {
			m := describe(c, chunks, 2, "")
			at := len(m.Subject) - len("A==")
			m.Subject = m.Subject[:at] + string(m.Subject[at]+1) + "==" // the lowest bits of that letter are not read
			return m
		}, false},
		{"another object with the same chunks", func(_ claims.Claim, chunks string) *nats.Msg {
			return describe(claims.Of([]byte("other")), chunks, 2, "")
		}, false},
	}
}

// chunksOf returns the name of the chunks of the only upload of the bucket.
func chunksOf(tb testing.TB, js jetstream.JetStream) string {
	tb.Helper()
	m, err := broker.LastStored(tb.Context(), js, "OBJ_CLAIMS", "$O.CLAIMS.C.>")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimPrefix(m.Subject, "$O.CLAIMS.C.")
}

// requireHarmless stores an object and its record, publishes a message against it, and requires
// that the object is read, by worker and producer, also after the orphans were removed twice.
func requireHarmless(t *testing.T, js jetstream.JetStream, h harm) {
	t.Helper()
	data := noise(7, 512<<10+1) // two chunks
	claimStore := claims.NewStore(js)
	claim, err := claimStore.Put(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	pipelinetest.PublishMessages(t.Context(), t, js, claimed("s", data))
	_, err = js.PublishMsg(t.Context(), h.message(claim, chunksOf(t, js)), jetstream.WithRetryAttempts(0))
	if refused := err != nil; refused != h.refused {
		t.Errorf("published: %v", err)
	}
	read := func() {
		t.Helper()
		if got, err := claims.NewStore(js).Get(t.Context(), claim); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("get: %d bytes, %v", len(got), err)
		}
	}
	read()
	for range 2 {
		collect(t, claimStore)
		read()
		for _, c := range []*claims.Store{claimStore, claims.NewStore(js)} { // one that knows the upload, and one that does not
			if _, err := c.Put(t.Context(), data); err != nil {
				t.Fatal(err)
			}
			read()
		}
	}
	if n, err := broker.MessagesOf(t.Context(), js, "OBJ_CLAIMS", []string{"$O.CLAIMS.C.>"}); err != nil || len(n) != 1 {
		t.Errorf("%d uploads of one object, %v", len(n), err)
	}
}

// No message of a producer removes, replaces or hides what another has stored.
func TestProducersCannotHarmObjectsOfEachOther(t *testing.T) {
	t.Parallel()
	for _, h := range harms() {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			requireHarmless(t, pipelinetest.NewServer(t).Provision(topology(1)), h)
		})
	}
}

// As TestProducersCannotHarmObjectsOfEachOther, with three nodes, whose leader checks messages
// at another place.
func TestProducersCannotHarmObjectsOfACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three servers")
	}
	top := topology(1)
	top.Replicas = 3
	cluster := pipelinetest.StartCluster(t, 3, 0)
	cluster.Settle(cluster.Provision(top))
	js := pipelinetest.Connect(t, cluster.Nodes[0].URL())
	awaitBucket(cluster, "the first node", js)
	s, err := js.Stream(t.Context(), "OBJ_CLAIMS")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range harms() {
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		requireHarmless(t, js, h)
	}
}

// A description with wrong bytes that is there before the record is put does not make it a
// dead letter: the producer reads what it did not store itself.
func TestProducerDoesNotTrustWhatOthersStoredBeforeIt(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).Provision(topology(1))
	data := noise(8, 1<<20)
	claim := claims.Of(data)
	chunk := messageTo("$O.CLAIMS.C.forged", strings.Repeat("x", 512<<10))
	for _, m := range []*nats.Msg{chunk, chunk, describe(claim, "nothing", 2, ""), describe(claim, "forged", 2, "")} {
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := claims.NewStore(js).Put(t.Context(), data); err != nil {
			t.Fatal(err)
		}
		if got, err := claims.NewStore(js).Get(t.Context(), claim); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("get: %d bytes, %v", len(got), err)
		}
	}
	if n, err := broker.MessagesOf(t.Context(), js, "OBJ_CLAIMS", []string{"$O.CLAIMS.C.>"}); err != nil || len(n) != 2 {
		t.Errorf("%d uploads, want the forged one and one more, %v", len(n), err)
	}
}

// A broker of before has a bucket that allows rollups: it is switched off, its objects are read,
// and a producer of before is refused with an error, and stores the record once it is updated.
func TestObjectsOfABucketThatAllowedRollups(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).JetStream()
	store, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: streams.ClaimsBucket})
	if err != nil {
		t.Fatal(err)
	}
	old, young := noise(9, 2<<20), noise(10, 1<<20)
	if _, err := store.PutBytes(t.Context(), claims.Of(old).Digest, old); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.NewStore(js).Put(t.Context(), young); err != nil { // before any worker was updated
		t.Fatal(err)
	}
	if err := streams.Provision(t.Context(), js, topology(1)); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{old, young} {
		if got, err := claims.NewStore(js).Get(t.Context(), claims.Of(data)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("get: %d bytes, %v", len(got), err)
		}
		if got, err := store.GetBytes(t.Context(), claims.Of(data).Digest); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("get of the object store: %d bytes, %v", len(got), err)
		}
	}
	// A worker of before collects: it would remove one of two descriptions, and the bytes of both.
	if _, err := claims.NewStore(js).Put(t.Context(), young); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "OBJ_CLAIMS")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), s.CachedInfo().State.LastSeq-1); err == nil {
		t.Error("a message of the bucket is deleted")
	}
	next := noise(11, 1<<20)
	if _, err := store.PutBytes(t.Context(), claims.Of(next).Digest, next); err == nil || !strings.Contains(err.Error(), "rollup not permitted") {
		t.Errorf("a producer of before: %v", err)
	}
	if _, err := claims.NewStore(js).Put(t.Context(), next); err != nil {
		t.Fatal(err)
	}
}

// Nobody removes the progress of subscriptions, or heartbeats, with one message.
func TestBucketsThatOthersWriteRefuseRollups(t *testing.T) {
	t.Parallel()
	js := pipelinetest.NewServer(t).JetStream()
	// A bucket as it was made before.
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: streams.SubscribersBucket, Storage: jetstream.FileStorage}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := streams.Provision(t.Context(), js, topology(1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, bucket := range []string{streams.SubscribersBucket, "TRIBUTARY_EDGES", "TRIBUTARY_WORKERS"} {
		kv, err := js.KeyValue(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), "mine", []byte("progress")); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"all", "sub"} {
			m := withHeader(messageTo("$KV."+bucket+".mine", ""), jetstream.MsgRollup, kind)
			if _, err := js.PublishMsg(t.Context(), m); err == nil || !strings.Contains(err.Error(), "rollup not permitted") {
				t.Errorf("bucket %s, rollup %s: %v", bucket, kind, err)
			}
		}
		if e, err := kv.Get(t.Context(), "mine"); err != nil || string(e.Value()) != "progress" {
			t.Errorf("bucket %s: %v", bucket, err)
		}
	}
}
