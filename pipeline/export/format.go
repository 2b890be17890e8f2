package export

import (
	"bufio"
	"io"

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

// Limits of a row group: readers read and decode one as a whole.
const (
	groupRows  = 128 << 10
	groupBytes = 32 << 20
)

// write writes rows as a file of the format. The same rows give the same bytes.
func (f Format) write(w io.Writer, rows []Row) error {
	if f == JSONL {
		return writeLines(w, rows)
	}
	out := parquet.NewGenericWriter[Row](w,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}),
		parquet.CreatedBy("tributary", "1", "export"),
		parquet.MaxRowsPerRowGroup(groupRows),
	)
	size := 0
	for i := range rows {
		if _, err := out.Write(rows[i : i+1]); err != nil {
			return err
		}
		if size += rows[i].size(); size >= groupBytes {
			if err := out.Flush(); err != nil {
				return err
			}
			size = 0
		}
	}
	return out.Close()
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
