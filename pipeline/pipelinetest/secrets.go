package pipelinetest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Secret is a made-up secret of a kind that redaction finds.
type Secret struct {
	Kind string
	Text string // as a record has it
	Core string // the part that must be gone
}

// Secrets returns a secret of each kind, assembled here so that no scanner of source code finds one.
func Secrets() []Secret {
	const (
		lower = "k3v9q2x7m4t8z1w6p5r0y2n8b4j7h3g9d6f1s5c0a8l2u7e4i9o3q6t1x5w8z2m7"
		mixed = "Zk3Vq9Xw2Lm7Tb4Rp8Yn1Gd6Hs5Jf0Ca9Ue3Io7Ek2Wx8Qv4Mz6Nt1Bp5Ry9LhDgSj"
		upper = "QWX7ZKJ3VNB2MTRL5YHGPDFC4SAUE6IO"
		hex   = "9f3b7c1e5a8d2064b9e7f1c3a5d80e24f6b1c9d7e3a52048"
	)
	list := []Secret{
		{Kind: "aws access key", Text: "AKIA" + upper[:16]},
		{Kind: "aws secret key", Text: "aws_secret_access_key = " + mixed[:40], Core: mixed[:40]},
		{Kind: "github token", Text: "ghp" + "_" + mixed[:36]},
		{Kind: "github fine-grained token", Text: "github" + "_pat_" + mixed[:22] + "_" + (mixed + lower)[:59]},
		{Kind: "gitlab token", Text: "glpat" + "-" + mixed[:20]},
		{Kind: "slack token", Text: "xox" + "b-2814097563812-2814097563812-" + mixed[:24]},
		{Kind: "slack webhook", Text: "https://hooks.slack" + ".com/services/T" + upper[:10] + "/B" + upper[5:15] + "/" + mixed[:24]},
		{Kind: "stripe key", Text: "sk" + "_live_" + mixed[:24]},
		{Kind: "openai key", Text: "sk" + "-proj-" + mixed[:48]},
		{Kind: "anthropic key", Text: "sk" + "-ant-api03-" + (mixed + lower)[:93] + "AA"},
		{Kind: "google api key", Text: "AI" + "za" + mixed[:35]},
		{Kind: "google oauth secret", Text: "GOC" + "SPX-" + mixed[:28]},
		{Kind: "private key", Text: "-----BEGIN RSA PRIVATE" + " KEY-----\n" + mixed[:64] + "\n" + lower[:64] + "\n-----END RSA PRIVATE" + " KEY-----", Core: lower[:64]},
		{Kind: "ssh key", Text: "-----BEGIN OPENSSH PRIVATE" + " KEY-----\nb3Blbn" + mixed[:58] + "\n" + mixed[2:66] + "\n-----END OPENSSH PRIVATE" + " KEY-----", Core: mixed[2:66]},
		{Kind: "jwt", Text: "ey" + base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))[2:] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"1234567890","name":"Ada"}`)) + "." + mixed[:43]},
		{Kind: "npm token", Text: "npm" + "_" + mixed[:36]},
		{Kind: "pypi token", Text: "pypi-AgEIcHlwaS5vcmc" + (mixed + lower)[:90]},
		{Kind: "azure secret", Text: "aB3" + "8Q~" + mixed[:31]},
		{Kind: "azure account key", Text: "AccountKey" + "=" + (mixed + lower)[:86] + "==", Core: (mixed + lower)[:86]},
		{Kind: "database url", Text: "postgres://app:" + mixed[:18] + "@db.internal:5432/orders", Core: mixed[:18]},
		{Kind: "basic auth url", Text: "https://ada:" + lower[:16] + "@registry.internal/simple", Core: lower[:16]},
		{Kind: "bearer header", Text: "Authorization: Bearer " + mixed[:40], Core: mixed[:40]},
		{Kind: "basic header", Text: "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("ada:"+lower[:20])), Core: base64.StdEncoding.EncodeToString([]byte("ada:" + lower[:20]))[:24]},
		{Kind: "generic api key", Text: "api_key=" + lower[:32], Core: lower[:32]},
		{Kind: "generic password", Text: `"password": "` + mixed[:20] + `"`, Core: mixed[:20]},
		{Kind: "sendgrid key", Text: "SG" + "." + mixed[:22] + "." + mixed[:43]},
		{Kind: "twilio key", Text: "SK" + hex[:32]},
		{Kind: "shopify token", Text: "shp" + "at_" + hex[:32]},
		{Kind: "digitalocean token", Text: "dop" + "_v1_" + (hex + hex)[:64]},
		{Kind: "hugging face token", Text: "hf" + "_" + strings.Map(letter, mixed)[:34]},
	}
	for i := range list {
		if list[i].Core == "" {
			list[i].Core = list[i].Text
		}
	}
	return list
}

// letter replaces a digit by a letter.
func letter(c rune) rune {
	if '0' <= c && c <= '9' {
		return 'a' + c - '0'
	}
	return c
}

// Uncompressed makes the streams store their messages uncompressed, so that [Server.RequireNowhere] finds texts on
// the disk. Call it before any message.
func (s *Server) Uncompressed(js jetstream.JetStream) {
	s.tb.Helper()
	for _, info := range s.streamInfos(js) {
		cfg := info.Config
		cfg.Compression = jetstream.NoCompression
		if _, err := js.UpdateStream(s.tb.Context(), cfg); err != nil {
			s.tb.Fatalf("stream %s: %v", cfg.Name, err)
		}
	}
}

// streamInfos returns the server's information about its streams.
func (s *Server) streamInfos(js jetstream.JetStream) []*jetstream.StreamInfo {
	s.tb.Helper()
	list := js.ListStreams(s.tb.Context())
	var all []*jetstream.StreamInfo
	for info := range list.Info() {
		all = append(all, info)
	}
	if err := list.Err(); err != nil {
		s.tb.Fatalf("list streams: %v", err)
	}
	return all
}

// RequireNowhere fails the test if one of the texts is in a message of any stream or in a file of the store, except
// those of the streams in except. It stops the server. It returns how many messages it has read from each stream.
func (s *Server) RequireNowhere(js jetstream.JetStream, texts []string, except ...string) map[string]int {
	s.tb.Helper()
	read := make(map[string]int)
	check := func(where string, content []byte) {
		for _, text := range texts {
			if bytes.Contains(content, []byte(text)) {
				s.tb.Errorf("%s has %.12s...", where, text)
			}
		}
	}
	for _, info := range s.streamInfos(js) {
		name := info.Config.Name
		if info.State.Msgs == 0 || slices.Contains(except, name) {
			continue
		}
		stream, err := js.Stream(s.tb.Context(), name)
		if err != nil {
			s.tb.Fatal(err)
		}
		var all []byte // a text may begin in one chunk of an object and end in the next
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			m, err := stream.GetMsg(s.tb.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				s.tb.Fatal(err)
			}
			read[name]++
			check(fmt.Sprintf("message %d of %s, %s", seq, name, m.Subject), fmt.Append(nil, m.Subject, m.Header))
			all = append(all, m.Data...)
		}
		if read[name] != int(info.State.Msgs) {
			s.tb.Errorf("read %d of %d messages of %s", read[name], info.State.Msgs, name)
		}
		check("a message of "+name, all)
	}
	s.Stop()
	err := filepath.WalkDir(s.cfg.StoreDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || slices.ContainsFunc(except, func(name string) bool { return strings.Contains(path, "/"+name+"/") }) {
			return err
		}
		content, err := os.ReadFile(path)
		check("file "+path, content)
		return err
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	return read
}

// Cores returns the parts of secrets that must be gone, in all forms that can be found.
func Cores(secrets []Secret) []string {
	var list []string
	for _, s := range secrets {
		for core := range strings.SplitSeq(s.Core, "\n") {
			list = append(list, core, base64.StdEncoding.EncodeToString([]byte(core))[:len(core)])
		}
	}
	return list
}
