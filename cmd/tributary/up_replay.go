package main

import (
	"context"
	"fmt"

	"tributary/normalizers"
	"tributary/pipeline/replay"
	"tributary/pipeline/streams"
)

// liveGeneration returns the live generation of the data folder. No other worker can continue a generation of another
// revision: it is built again if the user wants that, else refused.
func (u *up) liveGeneration(ctx context.Context) (string, error) {
	name, err := streams.LiveGeneration(ctx, u.js)
	if err != nil {
		return "", err
	}
	all, err := streams.ReadGenerations(ctx, u.js)
	if err != nil {
		return "", err
	}
	for _, g := range all.List {
		if g.Name != name || g.Revision == normalizers.Revision {
			continue
		}
		if !u.again {
			return "", fmt.Errorf("the events in %s are of revision %d, this program makes those of revision %d: "+
				"tributary up --replay builds them again, beside the old ones, and continues with the new ones", u.data, g.Revision, normalizers.Revision)
		}
		u.next = nextGeneration(all)
	}
	return name, nil
}

// nextGeneration returns the name of the generation to build: the one of an interrupted change or of an unfinished
// replay, else a new one.
func nextGeneration(all *streams.Generations) string {
	if all.Cutover.Open() {
		return all.Cutover.To
	}
	for n := 2; ; n++ {
		name := fmt.Sprintf("v%d", n)
		g, err := all.Find(name)
		if err != nil {
			return name
		}
		begun := g.State == streams.StateReplaying || g.State == streams.StateStarting
		if begun && g.Revision == normalizers.Revision && g.Part == (streams.Part{}) {
			return name
		}
	}
}

// makeAgain lets the running worker build the events of the live generation again, and makes the new ones live. It
// continues an interrupted run.
func (u *up) makeAgain(ctx context.Context) error {
	all, err := streams.ReadGenerations(ctx, u.js)
	if err != nil {
		return err
	}
	if !all.Cutover.Open() { // else all events exist
		g, err := replay.Start(ctx, u.js, replay.Request{Name: u.next, Expired: true})
		if err != nil {
			return err
		}
		fmt.Fprintf(u.stderr, "building the events of %s again with revision %d, as generation %s\n", all.Live, g.Revision, g.Name)
		if g.From != nil {
			fmt.Fprintf(u.stderr, "raw records before %v have expired: only %s has their events\n", g.From, all.Live)
		}
		if _, err := readReplayStatus(ctx, u.app, u.js, g.Name, true); err != nil {
			return err
		}
	}
	before, err := replay.Promote(ctx, u.js, u.next, true)
	if err != nil {
		return err
	}
	u.config.Generation = u.next
	fmt.Fprintf(u.stderr, "%s is live; while tributary up runs, tributary replay diff %[2]s %[1]s compares the two, and tributary replay drop %[2]s removes the old events\n", u.next, before)
	return nil
}
