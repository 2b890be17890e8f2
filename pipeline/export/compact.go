package export

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"slices"

	"tributary/pipeline/events"
	"tributary/pipeline/streams"
)

// Limits of a compaction.
const (
	compactBytes = 64 << 20 // spans whose files have so many bytes together do not grow further
	compactFiles = 16       // the files of the newest spans are replaced once that removes so many of them
)

// part is a file of a stored span.
type part struct {
	stored
	folder string
	span   span
}

// parts returns the stored files of the cell by folder, in row order. replaced are files whose rows another file of
// their folder contains.
func (a *archive) parts(list []stored) (parts, replaced []part) {
	var all []part
	for _, f := range list {
		if s, ok := spanOf(f.name, a.manifest.Format); ok && streams.CellOf(s.First) == a.cell() && s.Last <= a.manifest.Through {
			all = append(all, part{f, path.Dir(f.name), s})
		}
	}
	slices.SortFunc(all, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.folder, b.folder), compareSpans(a.span, b.span))
	})
	for _, p := range all {
		if n := len(parts); n > 0 && parts[n-1].folder == p.folder && parts[n-1].span.has(p.span) {
			replaced = append(replaced, p)
			continue
		}
		parts = append(parts, p)
	}
	return parts, replaced
}

// compact replaces small files of stored spans by larger ones, until that is no longer worth it. It returns the
// number of files removed, and of files that wait to be replaced with others.
//
// The manifest names a range of spans. Then, folder by folder, a file with all rows of the range appears whole, and
// the files that it replaces are removed. After an interruption the next run continues. A reader sees each row once
// if it skips files whose span another file of their folder contains.
func (a *archive) compact(ctx context.Context) (removed, waiting int, err error) {
	for {
		list, err := a.place.list(ctx)
		if err != nil {
			return removed, 0, err
		}
		s, wait := a.compactable(list)
		if s == (span{}) {
			return removed, wait, nil
		}
		m := &a.manifest
		m.Compacting = s
		m.Marks = slices.DeleteFunc(slices.Clone(m.Marks), func(mark events.Mark) bool { // no file ends there any more
			at := streams.PlaceOf(a.cell(), mark.Position)
			return s.First <= at && at < s.Last
		})
		if err := a.save(ctx); err != nil {
			return removed, 0, err
		}
		n, err := a.finishCompaction(ctx, list)
		removed += n
		if err != nil {
			return removed, 0, err
		}
	}
}

// spanFiles are the files of a span.
type spanFiles struct {
	span
	bytes   int64
	folders map[string]int // number of files in each folder
}

// compactable returns the oldest range of spans whose files are to be replaced: they have compactBytes together, or
// they are the newest ones and there are many. The newest spans exclude one that has more bytes than those behind it,
// so that each row is rewritten only a few times. If s is zero, waiting files wait for others.
func (a *archive) compactable(list []stored) (s span, waiting int) {
	parts, _ := a.parts(list)
	slices.SortStableFunc(parts, func(a, b part) int { return compareSpans(a.span, b.span) })
	var spans []spanFiles
	for _, p := range parts {
		if n := len(spans); n == 0 || !spans[n-1].has(p.span) {
			spans = append(spans, spanFiles{span: p.span, folders: map[string]int{}})
		}
		s := &spans[len(spans)-1]
		s.bytes += p.size
		s.folders[p.folder]++
	}
	first, size := 0, int64(0) // of the spans to join
	for i := range spans {
		if vanishing(spans[i:i+1]) > 0 {
			return spans[i].span, 0 // an interrupted compaction whose manifest was lost
		}
		end := i + 1
		if spans[i].bytes >= compactBytes {
			end = i // large enough already
		}
		if size += spans[i].bytes; size < compactBytes {
			continue
		}
		if vanishing(spans[first:end]) > 0 {
			return span{spans[first].First, spans[end-1].Last}, 0
		}
		first, size = i+1, 0
	}
	newest := spans[first:]
	for len(newest) > 1 && 2*newest[0].bytes > bytesOf(newest) {
		newest = newest[1:]
	}
	if n := vanishing(newest); n < compactFiles {
		return span{}, n
	}
	return span{newest[0].First, newest[len(newest)-1].Last}, 0
}

// bytesOf returns the bytes of all files of spans.
func bytesOf(spans []spanFiles) (n int64) {
	for i := range spans {
		n += spans[i].bytes
	}
	return n
}

// vanishing returns by how many files joining spans reduces their number.
func vanishing(spans []spanFiles) (n int) {
	folders := map[string]int{}
	for i := range spans {
		for folder, files := range spans[i].folders {
			folders[folder] += files
		}
	}
	for _, files := range folders {
		n += files - 1
	}
	return n
}

// finishCompaction finishes the compaction in the manifest and removes replaced files. An earlier run may have done
// part of both.
func (a *archive) finishCompaction(ctx context.Context, list []stored) (removed int, err error) {
	s := a.manifest.Compacting
	parts, replaced := a.parts(list)
	for len(parts) > 0 {
		folder := parts[0].folder
		n := slices.IndexFunc(parts, func(p part) bool { return p.folder != folder })
		if n < 0 {
			n = len(parts)
		}
		files := slices.DeleteFunc(slices.Clone(parts[:n]), func(p part) bool { return !s.has(p.span) })
		parts = parts[n:]
		if len(files) < 2 {
			continue // one file has all rows of the range
		}
		if err := a.place.add(ctx, []file{{folder + "/" + s.fileName(a.manifest.Format), a.join(ctx, files)}}); err != nil {
			return removed, err
		}
		if err := a.drop(ctx, files); err != nil {
			return removed, err
		}
		removed += len(files)
	}
	if err := a.drop(ctx, replaced); err != nil {
		return removed, err
	}
	removed += len(replaced)
	if s == (span{}) {
		return removed, nil
	}
	a.manifest.Compacting = span{}
	return removed, a.save(ctx)
}

// join returns a function that writes the rows of files as one file.
func (a *archive) join(ctx context.Context, files []part) func(io.Writer) error {
	var name string
	read := func(yield func([]byte, error) bool) {
		for _, f := range files {
			name = f.name
			if data, err := a.place.read(ctx, f.name); !yield(data, err) {
				return
			}
		}
	}
	return func(w io.Writer) error {
		if err := a.manifest.Format.join(w, read); err != nil {
			return fmt.Errorf("compact %s: %w", name, err)
		}
		return nil
	}
}

// drop removes files whose rows are in another file of their folder.
func (a *archive) drop(ctx context.Context, files []part) error {
	for _, f := range files {
		if err := a.place.remove(ctx, f.name); err != nil {
			return err
		}
	}
	return nil
}
