package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tributary/normalizers"
	"tributary/pipeline/ship"
)

// explainFiles prints how the agent of each file was recognized, or why the file is refused.
func explainFiles(ctx context.Context, a *app, paths []string, file normalizers.File) error {
	var failed filesError
	for _, path := range paths {
		r, err := recognizeLog(ctx, a, path, file)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && len(paths) == 1:
			return err
		case err != nil: // the others may succeed
			fmt.Fprintf(a.stderr, "tributary: %v\n", err)
			failed = filesError{failed.count + 1, err}
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "%s: %s\n", path, explanation(r)); err != nil {
			return err
		}
	}
	if failed.count > 0 {
		return failed
	}
	return nil
}

// explanation names the marker by which an agent was recognized.
func explanation(r normalizers.Recognition) string {
	switch err := r.Err(); {
	case err != nil:
		return "refused: " + err.Error()
	case r.Marker == "":
		return fmt.Sprintf("%s, by --source", r.Source)
	default:
		return fmt.Sprintf("%s, by %s in line %d", r.Source, r.Marker, r.Line)
	}
}

// recognizeLog reads the log at path until its agent is known.
func recognizeLog(ctx context.Context, a *app, path string, file normalizers.File) (normalizers.Recognition, error) {
	in, err := openLog(a, path, &file)
	if err != nil {
		return normalizers.Recognition{}, err
	}
	defer in.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	framer, chunks := normalizers.NewFramer(file), ship.Chunks(ctx, in)
	for framer.Recognition().Agent == "" {
		var chunk ship.Chunk
		select {
		case chunk = <-chunks:
		case <-ctx.Done():
			return normalizers.Recognition{}, ctx.Err()
		}
		if chunk.Err != nil && !errors.Is(chunk.Err, io.EOF) {
			return normalizers.Recognition{}, fmt.Errorf("%s: %w", path, chunk.Err)
		}
		_, _ = framer.Write(chunk.Data) // never fails
		if chunk.Err != nil {
			framer.Close()
			break
		}
	}
	return framer.Recognition(), nil
}
