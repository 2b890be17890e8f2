package normalizers

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is how much of what it has unpacked a zstd stream may refer back to: what its
// own program accepts.
const maxWindow = 128 << 20

// packings are the extensions of files that are packed, and how to unpack them.
var packings = map[string]func(io.Reader) (io.ReadCloser, error){
	".zst": func(r io.Reader) (io.ReadCloser, error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	},
	".gz": func(r io.Reader) (io.ReadCloser, error) {
		d, err := gzip.NewReader(r)
		if errors.Is(err, io.EOF) {
			return io.NopCloser(r), nil // nothing is in it yet
		}
		return d, err
	},
}

// Unpacked is the name of what a file of this name holds: without the extension of what
// packed it. It is the same name when the file is not packed.
func Unpacked(name string) string {
	for ext := range packings {
		if unpacked, ok := strings.CutSuffix(name, ext); ok {
			return unpacked
		}
	}
	return name
}

// Unpack reads what is packed in r, a file of this name, in bounded memory; what is not
// packed it reads as it is. To close it leaves r open.
func Unpack(name string, r io.Reader) (io.ReadCloser, error) {
	unpack, ok := packings[strings.TrimPrefix(name, Unpacked(name))]
	if !ok {
		return io.NopCloser(r), nil
	}
	unpacked, err := unpack(r)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return unpacked, nil
}
