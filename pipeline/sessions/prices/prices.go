// Package prices computes what tokens cost, from the built-in table or from a price file of the community: the
// model_prices_and_context_window.json of LiteLLM, or the api.json of models.dev.
//
// Start with [Builtin] or [Read], which return a table, and [Table.Find], which returns the [Price] of a model;
// [Price.Cost] applies it to [sessions.Billed].
//
// The invariant: nothing is guessed. Tokens without a price are counted as unpriced, never as free, and a model with
// conflicting prices has none.
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
	"tributary/pipeline/sessions"
)

// Rates are US dollars per token. A rate is nil if the table does not state it.
type Rates struct {
	Input, Output            *float64
	CacheRead                *float64
	CacheWrite, CacheWrite1h *float64 // for five minutes, for an hour
	Reasoning                *float64 // nil: reasoning costs as output
}

// Price is the price of a model.
type Price struct {
	Rates
	WebSearch *float64 // per request
	Above     int64    // one of [sessions.PromptSizes], above which Large applies; 0 for none
	Large     Rates
}

// Cost is what tokens cost, in US dollars, and how many have no price.
type Cost struct {
	USD      float64
	Unpriced int64 // tokens
	Searches int64 // web searches without a price
}

// Cost returns what tokens cost.
func (p *Price) Cost(t *sessions.Billed) Cost {
	var c Cost
	rest := t.Usage
	if p.Above > 0 {
		large := t.Large.Above(p.Above)
		p.Large.or(&p.Rates).cost(&large, &c)
		minus(&rest, &large)
	}
	p.Rates.cost(&rest, &c)
	switch {
	case p.WebSearch == nil:
		c.Searches = t.WebSearchRequests
	default:
		c.USD += float64(t.WebSearchRequests) * *p.WebSearch
	}
	return c
}

// minus subtracts the tokens of o from u.
func minus(u, o *envelopes.Usage) {
	u.Input -= o.Input
	u.CacheRead -= o.CacheRead
	u.CacheWrite -= o.CacheWrite
	u.CacheWrite1h -= o.CacheWrite1h
	u.Output -= o.Output
	u.Reasoning -= o.Reasoning
}

// cost adds the cost of tokens.
func (r *Rates) cost(u *envelopes.Usage, c *Cost) {
	reasoning := r.Reasoning
	if reasoning == nil {
		reasoning = r.Output
	}
	for _, part := range []struct {
		tokens int64
		rate   *float64
	}{
		{u.Input, r.Input},
		{u.CacheRead, r.CacheRead},
		{u.CacheWrite - u.CacheWrite1h, r.CacheWrite},
		{u.CacheWrite1h, r.CacheWrite1h},
		{u.Output, r.Output},
		{u.Reasoning, reasoning},
	} {
		if part.rate == nil {
			c.Unpriced += part.tokens
			continue
		}
		c.USD += float64(part.tokens) * *part.rate
	}
}

// parts returns pointers to the rates in the order of rateNames.
func (r *Rates) parts() [6]**float64 {
	return [...]**float64{&r.Input, &r.CacheRead, &r.CacheWrite, &r.CacheWrite1h, &r.Output, &r.Reasoning}
}

// or returns the rates with missing ones taken from o. Reasoning is output unless the rates state another price.
func (r Rates) or(o *Rates) *Rates {
	reasoning := r.Reasoning
	for i, part := range r.parts() {
		if *part == nil {
			*part = *o.parts()[i]
		}
	}
	r.Reasoning = reasoning
	return &r
}

// numbers lists all numbers of the price, infinite for missing ones.
func (p *Price) numbers() (list [14]float64) {
	stated := []*float64{p.WebSearch}
	for _, r := range []*Rates{&p.Rates, &p.Large} {
		for _, part := range r.parts() {
			stated = append(stated, *part)
		}
	}
	for i, v := range stated {
		if list[i] = math.Inf(1); v != nil {
			list[i] = *v
		}
	}
	list[len(stated)] = float64(p.Above)
	return list
}

// offer is the price of a model at one provider.
type offer struct {
	provider string
	Price
}

// Table has the prices of models. It is safe for concurrent use.
type Table struct {
	// Name says which table it is, and Date is its date; both are empty for a file.
	Name, Date string

	models map[string][]offer // by model name
}

// Errors of [Table.Find].
var (
	ErrNoPrice   = errors.New("no price")
	ErrAmbiguous = errors.New("prices differ")
)

// Read reads a price file of either form. Its error names the entry and the mistake.
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

// sampleEntry is the entry of LiteLLM that describes the fields.
const sampleEntry = "sample_spec"

// entry adds an entry of the file: a model, or a provider with its models.
func (t *Table) entry(name string, value jsontext.Value) error {
	var e map[string]jsontext.Value
	if err := json.Unmarshal(value, &e); err != nil {
		return fmt.Errorf("%q is not an object", name)
	}
	if e["models"] == nil {
		p, err := liteLLM(name, e)
		t.add(name, text(e["litellm_provider"]), p)
		return err
	}
	var models map[string]struct {
		Cost map[string]jsontext.Value `json:"cost"`
	}
	if err := json.Unmarshal(e["models"], &models); err != nil {
		return fmt.Errorf("the models of %q are not objects with a cost", name)
	}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		p, err := modelsDev(name+"/"+model, models[model].Cost)
		if err != nil {
			return err
		}
		t.add(model, name, p)
	}
	return nil
}

// add adds a price that states some token rate.
func (t *Table) add(model, provider string, p Price) {
	if p.Input != nil || p.Output != nil {
		t.models[model] = append(t.models[model], offer{provider, p})
	}
}

// liteLLM reads an entry of LiteLLM. A price of a search counts if it is the same for every search.
func liteLLM(name string, e map[string]jsontext.Value) (p Price, err error) {
	names := [...]string{
		"input_cost_per_token", "cache_read_input_token_cost", "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr",
		"output_cost_per_token", "output_cost_per_reasoning_token",
	}
	if p.Rates, err = readRates(name, e, names, 1); err != nil {
		return Price{}, err
	}
	for _, size := range sessions.PromptSizes {
		suffix := fmt.Sprintf("_above_%dk_tokens", size/1000)
		large := names
		for i := range large {
			large[i] += suffix
		}
		if p.Large, err = readRates(name, e, large, 1); err != nil {
			return Price{}, err
		}
		if p.Large != (Rates{}) {
			p.Above = size
			break
		}
	}
	var search map[string]float64
	if v := e["search_context_cost_per_query"]; v != nil && json.Unmarshal(v, &search) == nil {
		prices := slices.Compact(slices.Sorted(maps.Values(search)))
		if len(prices) == 1 && prices[0] >= 0 {
			p.WebSearch = &prices[0]
		}
	}
	return p, nil
}

// modelsDev reads the cost of a model of models.dev, which is per million tokens.
func modelsDev(name string, e map[string]jsontext.Value) (p Price, err error) {
	names := [...]string{"input", "cache_read", "cache_write", "", "output", "reasoning"}
	if p.Rates, err = readRates(name, e, names, 1e6); err != nil {
		return Price{}, err
	}
	var large map[string]jsontext.Value
	if v := e["context_over_200k"]; v != nil && json.Unmarshal(v, &large) == nil {
		p.Large, err = readRates(name, large, names, 1e6)
		p.Above = 200_000
	}
	return p, err
}

// readRates reads the members with these names, which are prices per so many tokens.
func readRates(name string, e map[string]jsontext.Value, names [6]string, per float64) (r Rates, err error) {
	for i, field := range names {
		v := e[field]
		if v == nil || v.Kind() == jsontext.KindNull {
			continue
		}
		var n float64
		if err := json.Unmarshal(v, &n); err != nil || n < 0 {
			return Rates{}, fmt.Errorf("%s of %q is no number from 0 on", field, name)
		}
		n /= per
		*r.parts()[i] = &n
	}
	return r, nil
}

// text returns a JSON string; empty for anything else.
func text(v jsontext.Value) string {
	var s string
	if v == nil || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// Find returns the price of a model. An entry with this name takes precedence over entries whose names end in "/" and
// the name. Among several, the first one in providers decides. If there is none of them, all must agree; entries with
// only zeros, as for subscriptions, are ignored if others state more.
// The error wraps [ErrNoPrice], or [ErrAmbiguous] with the names of the providers.
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
		if o.numbers() != offers[0].numbers() {
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
	for _, v := range o.numbers() {
		if v != 0 && !math.IsInf(v, 1) {
			return false
		}
	}
	return true
}
