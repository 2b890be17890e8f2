package export

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// Format is the format of the files.
type Format string

// The formats.
const (
	Parquet Format = "parquet" // compressed with zstd
	JSONL   Format = "jsonl"   // one object per line
)

// Formats lists every format.
var Formats = []Format{Parquet, JSONL}

// extension is the end of the names of files.
func (f Format) extension() string { return "." + string(f) }

// Limits of a row group, which readers read and decode as a whole.
const (
	groupRows  = 128 << 10
	groupBytes = 32 << 20
)

// write writes rows as a file of the format. The same rows give the same bytes.
func (f Format) write(w io.Writer, rows []Row) error {
	if f == JSONL {
		return writeLines(w, rows)
	}
	out := newParquetWriter(w)
	if err := out.add(rows); err != nil {
		return err
	}
	return out.Close()
}

// join writes the rows of files of the format as one file.
func (f Format) join(w io.Writer, files iter.Seq2[[]byte, error]) error {
	if f == JSONL {
		return eachFile(files, func(data []byte) error {
			_, err := w.Write(data)
			return err
		})
	}
	out := newParquetWriter(w)
	if err := eachFile(files, out.addFile); err != nil {
		return err
	}
	return out.Close()
}

// eachFile calls add with the content of each file, until an error.
func eachFile(files iter.Seq2[[]byte, error], add func([]byte) error) error {
	for data, err := range files {
		if err != nil {
			return err
		}
		if err := add(data); err != nil {
			return err
		}
	}
	return nil
}

// parquetWriter writes a Parquet file.
type parquetWriter struct {
	*parquet.GenericWriter[Row]
	size int // of the rows in the row group
}

func newParquetWriter(w io.Writer) *parquetWriter {
	return &parquetWriter{GenericWriter: parquet.NewGenericWriter[Row](w,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}),
		parquet.CreatedBy("tributary", "1", "export"),
		parquet.MaxRowsPerRowGroup(groupRows),
	)}
}

// add adds rows.
func (w *parquetWriter) add(rows []Row) error {
	for i := range rows {
		if _, err := w.Write(rows[i : i+1]); err != nil {
			return err
		}
		if w.size += rows[i].size(); w.size >= groupBytes {
			if err := w.Flush(); err != nil {
				return err
			}
			w.size = 0
		}
	}
	return nil
}

// addFile adds the rows of a Parquet file. Columns missing from files of older versions are null; the date is
// computed from the time.
func (w *parquetWriter) addFile(data []byte) error {
	in := parquet.NewGenericReader[Row](bytes.NewReader(data))
	defer in.Close()
	rows := make([]Row, 64)
	for left := in.NumRows(); ; {
		clear(rows)
		n, err := in.Read(rows)
		left -= int64(n)
		for i := range rows[:n] {
			rows[i].Date = rows[i].date()
		}
		if err := w.add(rows[:n]); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF) && left == 0:
			return nil
		case err != nil:
			return fmt.Errorf("%d rows cannot be read: %w", left, err)
		}
	}
}

// writeLines writes rows as lines of JSON.
func writeLines(w io.Writer, rows []Row) error {
	out := bufio.NewWriterSize(w, 1<<20)
	for i := range rows {
		if err := json.MarshalWrite(out, &rows[i], json.Deterministic(true)); err != nil {
			return err
		}
		if err := out.WriteByte('\n'); err != nil {
			return err
		}
	}
	return out.Flush()
}
