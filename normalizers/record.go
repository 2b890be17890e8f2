package normalizers

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// readRecord decodes a record into a wire struct of the vendor. Any JSON is a record:
// one that is no object leaves the struct empty, and is kept as unknown. What is not
// JSON is [ErrMalformed]; the error tells where, never what.
func readRecord(data []byte, into any) error {
	var err error
	if v := jsontext.Value(data); v.Kind() == '{' {
		err = json.Unmarshal(data, into, vendorJSON)
	} else {
		err = readValue(v)
	}
	if err == nil {
		return nil
	}
	at := int64(-1)
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = syntax.ByteOffset
	}
	if at < 0 {
		return fmt.Errorf("%w: not JSON", ErrMalformed)
	}
	return fmt.Errorf("%w: not JSON at byte %d of %d", ErrMalformed, at, len(data))
}

// readValue checks that v is one JSON value.
func readValue(v jsontext.Value) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), vendorJSON)
	if err := dec.SkipValue(); err != nil {
		return err
	}
	if len(bytes.TrimSpace(v[dec.InputOffset():])) > 0 {
		return ErrMalformed
	}
	return nil
}

// isPlain reports whether a line is text that was never meant to be JSON.
func isPlain(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '{' && line[0] != '[' && bytes.IndexByte(line, 0) < 0 &&
		!jsontext.Value(line).IsValid(vendorJSON)
}

// plainText is a line of text as an event can carry it.
func plainText(line []byte) string { return strings.ToValidUTF8(string(line), "\ufffd") }
