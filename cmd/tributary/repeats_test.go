package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepeatedTroubleIsLoggedOnceAMinute has a trouble every 700 ms for two minutes, beside another
// one and what is no trouble. None falls on the end of a minute, where it would belong to either.
func TestRepeatedTroubleIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(newRepeats(slog.NewTextHandler(&out, nil))).With("generation", "v1")
		for i := range 172 { // the last one after 119.7 s
			log.Warn("partitions lost", "error", fmt.Errorf("no answer after %d ms", i), "partitions", strconv.Itoa(i), "epoch", i)
			log.Info("progress", "n", 1)
			<-time.After(700 * time.Millisecond)
		}
		log.Warn("partitions lost", "error", errors.New("no leader"))
		log.With("generation", "b").Warn("partitions lost", "error", errors.New("no leader"))
		<-time.After(2 * time.Minute)
		synctest.Wait()
		text := out.String()
		for part, want := range map[string]int{
			"progress": 172, "no leader": 2, "no answer": 3,
			`error="no answer after 0 ms"`: 1, `error="no answer after 85 ms"`: 1, "repeated=85": 1, `error="no answer after 171 ms"`: 1, "repeated=86": 1,
		} {
			if n := strings.Count(text, part); n != want {
				t.Errorf("%q is there %d times, want %d:\n%s", part, n, want, strings.ReplaceAll(text, "msg=progress", ""))
			}
		}
	})
}

// TestManyTroublesAreNotRemembered has more different troubles than are remembered: each is a line.
func TestManyTroublesAreNotRemembered(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(newRepeats(slog.NewTextHandler(&out, nil)))
	for range 2 {
		for i := range 2 * maxRepeats {
			log.Warn("not shipped", "path", i)
		}
	}
	if n := strings.Count(out.String(), "not shipped"); n != 3*maxRepeats {
		t.Errorf("%d lines, want %d", n, 3*maxRepeats)
	}
}
