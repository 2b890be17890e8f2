package doctor

import (
	"context"
	"fmt"
	"slices"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/erasure"
)

// erasures finds erasures that were begun and are not finished.
func (x *examination) erasures(ctx context.Context) error {
	log, err := erasure.Log(ctx, x.js)
	if err != nil {
		return err
	}
	open := slices.DeleteFunc(log, func(e erasure.Entry) bool { return !e.Ended.IsZero() })
	if len(open) == 0 {
		return nil
	}
	first, more := &open[0], ""
	if n := len(open) - 1; n > 0 {
		more = ", and of " + terminal.Plural(n, "other session") + ","
	}
	session := terminal.OneLine(string(first.Source) + "/" + first.Session)
	x.d.Problems = append(x.d.Problems, fmt.Sprintf("the erasure of session %s%s was interrupted, or is under way: %s began it at %s: finish it with tributary erase --session %s",
		session, more, terminal.OneLine(first.By), terminal.DateTime(first.Begun), session))
	return nil
}
