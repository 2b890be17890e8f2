package streams

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// Limit is a limit of the account or of a stream, and its use.
type Limit struct {
	Name  string `json:"name"` // such as stream RAW
	Used  int64  `json:"used"`
	Max   int64  `json:"max"`
	Bytes bool   `json:"bytes,omitzero"` // counts bytes; otherwise a number
}

// LimitStorage is the name of the storage limit of an account.
const LimitStorage = "storage of the account"

// Share returns the used part, 1 for all of it.
func (l Limit) Share() float64 { return float64(l.Used) / float64(l.Max) }

// ReadLimits returns the limits of the account of js, for streams with this number of replicas, and of streams.
func ReadLimits(ctx context.Context, js jetstream.JetStream, replicas int, streams []StreamStatus) ([]Limit, error) {
	tier, err := accountTier(ctx, js, replicas)
	if err != nil {
		return nil, err
	}
	all := []Limit{
		{LimitStorage, int64(tier.Store), tier.Limits.MaxStore, true},              //nolint:gosec // bytes of a disk
		{"memory of the account", int64(tier.Memory), tier.Limits.MaxMemory, true}, //nolint:gosec // bytes of memory
		{"streams of the account", int64(tier.Streams), int64(tier.Limits.MaxStreams), false},
	}
	for _, s := range streams {
		all = append(all,
			Limit{"stream " + s.Name, int64(s.Bytes), s.MaxBytes, true},                        //nolint:gosec // as above
			Limit{"messages of the stream " + s.Name, int64(s.Messages), s.MaxMessages, false}, //nolint:gosec // as above
			Limit{"consumers of the stream " + s.Name, int64(s.Consumers), int64(tier.Limits.MaxConsumers), false})
	}
	var list []Limit
	for _, l := range all {
		if l.Max > 0 {
			list = append(list, l)
		}
	}
	return list, nil
}

// accountTier reads use and limits of the account of js for streams with this number of replicas.
func accountTier(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.Tier, error) {
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return jetstream.Tier{}, fmt.Errorf("limits of the account: %w", err)
	}
	if tier, ok := info.Tiers["R"+strconv.Itoa(max(replicas, 1))]; ok {
		return tier, nil
	}
	return info.Tier, nil
}
