package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a TLS certificate of this program. It is read again when its files have changed, so that a renewal needs
// no restart.
type certificate struct {
	cert, key string // files
	settings  string // that name them
	log       *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]fileState // of the files when current was read
	failed  bool         // the last reading failed
}

// fileState detects a change of a file without reading it.
type fileState struct {
	modified time.Time
	size     int64
}

// newCertificate reads the certificate that the settings of a prefix name, nil if they name none.
func newCertificate(prefix, cert, key string, log *slog.Logger) (*certificate, error) {
	if cert == "" && key == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	if cert == "" || key == "" {
		return nil, usageError{fmt.Errorf("%s_CERT: set it and %s_KEY both, or none", prefix, prefix)}
	}
	is := &certificate{cert: cert, key: key, settings: prefix + "_CERT and " + prefix + "_KEY", log: log}
	return is, is.load()
}

// load reads the files if they have changed.
func (c *certificate) load() error {
	var now [2]fileState
	for i, name := range []string{c.cert, c.key} {
		file, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("%s: %w", c.settings, err)
		}
		now[i] = fileState{file.ModTime(), file.Size()}
	}
	if now == c.read {
		return nil
	}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s: %w", c.settings, err)
	}
	c.current, c.read = &loaded, now
	return nil
}

// get implements [tls.Config.GetCertificate]. While the files cannot be read, for example if only one of them is replaced,
// it returns the previous certificate.
func (c *certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.load()
	if err != nil && !c.failed { // the first of consecutive failures
		c.log.WarnContext(hello.Context(), "the TLS certificate has changed and cannot be read: the one before is served", "error", err)
	}
	c.failed = err != nil
	return c.current, nil
}
