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

// What is packed may hold so many times its size, and a part that is free: logs pack to a
// tenth, the most repetitive ones to a hundredth. What holds more is meant to harm.
const (
	maxUnpackRatio = 1000
	freeUnpacked   = 16 << 20
)

// ErrWindow is that a packed file refers back further than its reader has memory for.
var ErrWindow = errors.New("packed file refers back too far")

// ErrUnpack is that a packed file holds too much.
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

// Unpack reads what is packed in r, a file of this name, in bounded memory, up to
// [ErrUnpack]; what is not packed it reads as it is. To close it leaves r open.
func Unpack(name string, r io.Reader) (io.ReadCloser, error) {
	return UnpackWithin(name, r, maxWindow)
}

// UnpackWithin is [Unpack] for a reader that has memory for so many bytes to refer back to: the error of a file that
// needs more is [ErrWindow].
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

// unpackError says of what is cut off that it is.
func unpackError(err error) error {
	switch {
	case err == nil || err == io.EOF: //nolint:errorlint // a reader ends with io.EOF itself
		return err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: %w", ErrWindow, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("unpack: the file is cut off: %w", err)
	default:
		return fmt.Errorf("unpack: %w", err)
	}
}

// counted counts what is read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// bounded ends with an error when more comes out than can be meant.
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
