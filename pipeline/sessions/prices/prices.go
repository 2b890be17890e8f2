// Package prices computes what tokens cost, by a price file of the community: the
// model_prices_and_context_window.json of LiteLLM, or the api.json of models.dev.
//
// Start with [Read], which reads a file, and [Table.Find], which returns the [Price] of a model;
// [Price.Cost] applies it to the usage of an event.
//
// The invariant: nothing is guessed. Tokens without a price are counted as such and never as
// free, and a model with several prices has none.
package prices

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tributary/envelopes"
)

// Price is the price of a model in US dollars for one token. A part is nil if the file does not
// state it.
type Price struct {
	Input, Output         *float64
	CacheRead, CacheWrite *float64
	Reasoning             *float64 // nil: reasoning is output
}

// Cost returns what tokens cost in US dollars, and how many of them have no price.
func (p *Price) Cost(u *envelopes.Usage) (usd float64, unpriced int64) {
	reasoning := p.Reasoning
	if reasoning == nil {
		reasoning = p.Output
	}
	for _, part := range []struct {
		tokens int64
		price  *float64
	}{{u.Input, p.Input}, {u.CacheRead, p.CacheRead}, {u.CacheWrite, p.CacheWrite}, {u.Output, p.Output}, {u.Reasoning, reasoning}} {
		if part.price == nil {
			unpriced += part.tokens
			continue
		}
		usd += float64(part.tokens) * *part.price
	}
	return usd, unpriced
}

// parts lists the parts of a price, infinite for one that is not stated.
func (p *Price) parts() [5]float64 {
	var out [5]float64
	for i, v := range []*float64{p.Input, p.Output, p.CacheRead, p.CacheWrite, p.Reasoning} {
		if out[i] = math.Inf(1); v != nil {
			out[i] = *v
		}
	}
	return out
}

// offer is the price of a model at one provider.
type offer struct {
	provider string
	Price
}

// Table is a price file.
type Table struct {
	models map[string][]offer // by the name of the model
}

// Errors of [Table.Find].
var (
	ErrNoPrice   = errors.New("no price")
	ErrAmbiguous = errors.New("prices differ")
)

// Read reads a price file of either shape. An error names the entry and what is wrong with it.
func Read(r io.Reader) (*Table, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var entries map[string]jsontext.Value
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, errors.New("not a JSON object of models (LiteLLM) or of providers (models.dev)")
	}
	t := &Table{models: map[string][]offer{}}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if name == sampleEntry {
			continue
		}
		if err := t.entry(name, entries[name]); err != nil {
			return nil, err
		}
	}
	if len(t.models) == 0 {
		return nil, errors.New("no prices: want model_prices_and_context_window.json of LiteLLM, or api.json of models.dev")
	}
	return t, nil
}

// sampleEntry of LiteLLM describes the fields.
const sampleEntry = "sample_spec"

// entry adds an entry of the file: a model, or a provider with its models.
func (t *Table) entry(name string, value jsontext.Value) error {
	var e map[string]jsontext.Value
	if err := json.Unmarshal(value, &e); err != nil {
		return fmt.Errorf("%q is no object", name)
	}
	if e["models"] == nil {
		provider := text(e["litellm_provider"])
		p, err := read(name, e, 1, "input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost", "output_cost_per_reasoning_token")
		if p.Input != nil || p.Output != nil {
			t.models[name] = append(t.models[name], offer{provider, p})
		}
		return err
	}
	var models map[string]struct {
		Cost map[string]jsontext.Value `json:"cost"`
	}
	if err := json.Unmarshal(e["models"], &models); err != nil {
		return fmt.Errorf("the models of %q are no objects with a cost", name)
	}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		p, err := read(name+"/"+model, models[model].Cost, 1e6, "input", "output", "cache_read", "cache_write", "reasoning")
		if err != nil {
			return err
		}
		if p.Input != nil || p.Output != nil {
			t.models[model] = append(t.models[model], offer{name, p})
		}
	}
	return nil
}

// read reads the parts of a price, which are stated for so many tokens.
func read(name string, e map[string]jsontext.Value, per float64, input, output, cacheRead, cacheWrite, reasoning string) (Price, error) {
	var p Price
	for field, to := range map[string]**float64{input: &p.Input, output: &p.Output, cacheRead: &p.CacheRead, cacheWrite: &p.CacheWrite, reasoning: &p.Reasoning} {
		v := e[field]
		if v == nil || v.Kind() == jsontext.KindNull {
			continue
		}
		var n float64
		if err := json.Unmarshal(v, &n); err != nil || n < 0 {
			return Price{}, fmt.Errorf("%s of %q is no number from 0 on", field, name)
		}
		n /= per
		*to = &n
	}
	return p, nil
}

// text returns the value of a string of JSON, empty for anything else.
func text(v jsontext.Value) string {
	var s string
	if v == nil || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// Find returns the price of a model. An entry of the name counts before entries whose name ends in "/"
// and the name. Of several the first of providers decides; without one of them all have to agree, those
// left out that state nothing but zeros, as subscriptions do, while others state more.
//
// The error wraps [ErrNoPrice], or [ErrAmbiguous] and names the providers.
func (t *Table) Find(model string, providers []string) (Price, error) {
	offers := t.models[model]
	if len(offers) == 0 {
		for _, name := range slices.Sorted(maps.Keys(t.models)) {
			if strings.HasSuffix(name, "/"+model) {
				offers = append(offers, t.models[name]...)
			}
		}
	}
	for _, provider := range providers {
		for _, o := range offers {
			if o.provider == provider {
				return o.Price, nil
			}
		}
	}
	if stated := slices.DeleteFunc(slices.Clone(offers), offer.free); len(stated) > 0 {
		offers = stated
	}
	if len(offers) == 0 {
		return Price{}, ErrNoPrice
	}
	for _, o := range offers[1:] {
		if o.parts() != offers[0].parts() {
			names := make([]string, len(offers))
			for i := range offers {
				names[i] = offers[i].provider
			}
			slices.Sort(names)
			return Price{}, fmt.Errorf("%w: of %s", ErrAmbiguous, strings.Join(slices.Compact(names), ", "))
		}
	}
	return offers[0].Price, nil
}

// free reports whether a price states nothing but zeros.
func (o offer) free() bool {
	for _, v := range o.parts() {
		if v != 0 && !math.IsInf(v, 1) {
			return false
		}
	}
	return true
}
