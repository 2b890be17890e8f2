package normalizers

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is how far a zstd stream may refer back in its unpacked content: as far as the zstd program accepts.
const maxWindow = 128 << 20

// Packed content may be this many times its size, plus a free allowance. Logs pack to a tenth, the most repetitive
// ones to a hundredth; larger ratios are attacks.
const (
	maxUnpackRatio = 1000
	freeUnpacked   = 16 << 20
)

// ErrWindow means that a packed file refers back further than its reader has memory for.
var ErrWindow = errors.New("packed file refers back too far")

// ErrUnpack means that a packed file has too much content.
var ErrUnpack = errors.New("packed file holds more than 1,000 times its size: unpack it yourself if you trust it")

// packings are the extensions of files that are packed, and how to unpack them.
var packings = map[string]func(r io.Reader, window uint64) (io.ReadCloser, error){
	".zst": func(r io.Reader, window uint64) (io.ReadCloser, error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxWindow), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	},
	".gz": func(r io.Reader, _ uint64) (io.ReadCloser, error) {
		d, err := gzip.NewReader(r)
		if errors.Is(err, io.EOF) {
			return io.NopCloser(r), nil // empty so far
		}
		return d, err
	},
}

// Unpacked returns the name of a file's content: without the extension of packing, if it has one.
func Unpacked(name string) string {
	for ext := range packings {
		if unpacked, ok := strings.CutSuffix(name, ext); ok {
			return unpacked
		}
	}
	return name
}

// Unpack unpacks r, a file of this name, in bounded memory, with an error at [ErrUnpack]; a file that is not packed
// is read unchanged. Close does not close r.
func Unpack(name string, r io.Reader) (io.ReadCloser, error) {
	return UnpackWithin(name, r, maxWindow)
}

// UnpackWithin is [Unpack] with memory for window bytes of back references: a file that needs more returns
// [ErrWindow].
func UnpackWithin(name string, r io.Reader, window int) (io.ReadCloser, error) {
	unpack, ok := packings[strings.TrimPrefix(name, Unpacked(name))]
	if !ok {
		return io.NopCloser(r), nil
	}
	packed := &counted{Reader: r}
	unpacked, err := unpack(packed, uint64(window)) //nolint:gosec // a constant of the caller
	if err != nil {
		return nil, unpackError(err)
	}
	return &bounded{ReadCloser: unpacked, packed: packed}, nil
}

// unpackError names a truncated file as such.
func unpackError(err error) error {
	switch {
	case err == nil || err == io.EOF: //nolint:errorlint // a reader ends with io.EOF itself
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: %w", ErrWindow, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("unpack: the file is truncated: %w", err)
	default:
		return fmt.Errorf("unpack: %w", err)
	}
}

// counted counts the bytes read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// bounded returns an error if the content exceeds its limit.
type bounded struct {
	io.ReadCloser
	packed *counted
	n      int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.n > freeUnpacked+maxUnpackRatio*b.packed.n {
		return 0, ErrUnpack
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, unpackError(err)
}
