package figures

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

// Pricing computes costs with a table of prices. It is safe for concurrent use.
type Pricing struct {
	table     *prices.Table
	source    string
	providers []string

	mu    sync.Mutex
	found map[string]foundPrice // by model, at most maxFound
}

// foundPrice is the price of a model, or the reason why it has none.
type foundPrice struct {
	prices.Price
	err error
}

// maxFound bounds the prices in memory, because events can state any model.
const maxFound = 4096

// NewPricing returns the pricing of a table. source names the table and its date. If providers disagree about a
// model, the first of providers counts.
func NewPricing(table *prices.Table, source string, providers []string) *Pricing {
	return &Pricing{table: table, source: source, providers: providers, found: map[string]foundPrice{}}
}

// BuiltinPricing returns the pricing of the built-in table.
func BuiltinPricing() *Pricing {
	table := prices.Builtin()
	return NewPricing(table, "built-in table of "+table.Date+", from "+table.Name, nil)
}

// ReadPricing reads a price file.
func ReadPricing(name string, providers []string) (*Pricing, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("price file: %w", err)
	}
	defer f.Close()
	table, err := prices.Read(f)
	if err != nil {
		return nil, fmt.Errorf("price file %s: %w", name, err)
	}
	source := terminal.OneLine(name)
	if info, err := f.Stat(); err == nil {
		source += " of " + info.ModTime().UTC().Format(time.DateOnly)
	}
	return NewPricing(table, source, providers), nil
}

// Source names the table and its date.
func (p *Pricing) Source() string { return p.source }

// Cost is the cost of tokens.
type Cost struct {
	USD      float64
	Unpriced int64 // tokens without a price
	Searches int64 // web searches without a price
	Priced   bool  // some tokens have a price, or there are none
}

// Cost returns the cost of the tokens of models.
func (p *Pricing) Cost(models map[string]*sessions.Billed) Cost {
	var c Cost
	total := int64(0)
	for _, model := range slices.Sorted(maps.Keys(models)) {
		price := p.find(model)
		of := price.Cost(models[model]) // without a price only tokens and searches, unpriced
		c.USD += of.USD
		c.Unpriced += of.Unpriced
		c.Searches += of.Searches
		total += models[model].Total()
	}
	c.Priced = c.Unpriced < total || total == 0
	return c
}

// find returns the price of a model, or the reason why it has none.
func (p *Pricing) find(model string) foundPrice {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, known := p.found[model]
	if !known {
		found.Price, found.err = p.table.Find(model, p.providers)
		if len(p.found) >= maxFound {
			clear(p.found)
		}
		p.found[strings.Clone(model)] = found
	}
	return found
}

// Rounded returns the amount without the noise of binary fractions.
func (c Cost) Rounded() float64 { return math.Round(c.USD*1e9) / 1e9 }

// Add adds another cost.
func (c *Cost) Add(o Cost) {
	c.USD += o.USD
	c.Unpriced += o.Unpriced
	c.Searches += o.Searches
	c.Priced = c.Priced || o.Priced
}

// Text writes a cost for people. A plus sign says that some tokens have no price.
func (c Cost) Text() string {
	switch {
	case !c.Priced:
		return "?"
	case c.Unpriced > 0 || c.Searches > 0:
		return Dollars(c.USD) + "+"
	default:
		return Dollars(c.USD)
	}
}

// CostJSON is a cost in JSON.
type CostJSON struct {
	Cost     *float64 `json:"cost_usd"` // null if no token has a price
	Unpriced int64    `json:"unpriced"` // tokens without a price
}

// JSON returns the JSON form of the cost of a session.
func (c Cost) JSON() CostJSON {
	j := CostJSON{Unpriced: c.Unpriced}
	if c.Priced {
		j.Cost = new(c.Rounded())
	}
	return j
}

// Dollars writes an amount with cents; a small one has more digits.
func Dollars(usd float64) string {
	if usd != 0 && usd < 0.1 {
		return fmt.Sprintf("$%.4f", usd)
	}
	whole := int64(usd*100 + 0.5)
	return fmt.Sprintf("$%s.%02d", terminal.Thousands(whole/100), whole%100)
}

// Unpriced is the part of a model that has no price.
type Unpriced struct {
	Model    string // empty if unknown
	Tokens   int64
	Searches int64  // web searches
	Reason   string // empty if the table lacks the model
}

// Unpriced returns the models that lack a price, the model with the most tokens first.
func (p *Pricing) Unpriced(models map[string]*sessions.Billed) []Unpriced {
	var list []Unpriced
	for model, tokens := range models {
		found := p.find(model)
		of := found.Cost(tokens)
		if of.Unpriced == 0 && of.Searches == 0 {
			continue
		}
		reason := "some kinds of tokens"
		if found.err != nil {
			reason = strings.TrimPrefix(found.err.Error(), prices.ErrNoPrice.Error())
		}
		list = append(list, Unpriced{model, of.Unpriced, of.Searches, reason})
	}
	slices.SortFunc(list, func(a, b Unpriced) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Model, b.Model))
	})
	return list
}

// Text describes what the cost lacks, and why.
func (u *Unpriced) Text() string {
	what := terminal.Thousands(u.Tokens) + " tokens"
	if u.Searches > 0 {
		what += " and " + terminal.Plural(int(u.Searches), "web search request")
	}
	note := ""
	if u.Reason != "" {
		note = " (" + u.Reason + ")"
		if strings.HasPrefix(u.Reason, prices.ErrAmbiguous.Error()) {
			note = " (" + u.Reason + ": choose with --provider)"
		}
	}
	return fmt.Sprintf("%s: %s are not in the cost%s", cmp.Or(terminal.OneLine(u.Model), "unknown model"), what, note)
}
