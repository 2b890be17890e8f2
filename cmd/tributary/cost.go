package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

// pricing computes costs with a table of prices, and collects what has no price.
type pricing struct {
	table     *prices.Table
	source    string // of the table, and its date
	providers []string
	found     map[string]foundPrice
	missing   map[string]*missingPrice
}

// foundPrice is the price of a model, or why it has none.
type foundPrice struct {
	prices.Price
	err error
}

// missingPrice are the tokens of a model that have no price.
type missingPrice struct {
	tokens   int64
	searches int64
	reason   string
}

// pricesHelp says in the help of commands where costs come from.
const pricesHelp = `The cost is in US dollars, at the list prices that are built in, or those of --prices: a
file of LiteLLM (model_prices_and_context_window.json) or models.dev (api.json). The
output says which table it is, and its date. Cache writes of an hour, prompts above a size
and web searches have prices of their own. Tokens without a price are not in it: their
models are printed, a plus sign marks the amount, and JSON has their number as unpriced.`

// pricesFlags adds the flags that choose a table.
func pricesFlags(flags *pflag.FlagSet, file *string, providers *[]string) {
	flags.StringVar(file, "prices", "", "price `file` of LiteLLM or models.dev, in place of the built-in table")
	flags.StringSliceVar(providers, "provider", nil, "providers whose prices count, the first first")
}

// newPricing reads a price file; without a name it is the table that is built in.
func newPricing(name string, providers []string) (*pricing, error) {
	p := &pricing{providers: providers, found: map[string]foundPrice{}, missing: map[string]*missingPrice{}}
	if name == "" {
		if len(providers) > 0 {
			return nil, usageError{fmt.Errorf("--provider chooses between the prices of a file: pass --prices FILE, too")}
		}
		p.table = prices.Builtin()
		p.source = "built-in table of " + p.table.Date + ", from " + p.table.Name
		return p, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("price file: %w", err)
	}
	defer f.Close()
	if p.table, err = prices.Read(f); err != nil {
		return nil, fmt.Errorf("price file %s: %w", name, err)
	}
	p.source = terminal.OneLine(name)
	if info, err := f.Stat(); err == nil {
		p.source += " of " + info.ModTime().UTC().Format(time.DateOnly)
	}
	return p, nil
}

// cost is what tokens cost.
type cost struct {
	usd      float64
	unpriced int64 // tokens that are not in usd
	searches int64 // web searches that are not
	priced   bool  // some tokens are in usd, or there are none
}

// of returns the cost of the tokens of models.
func (p *pricing) of(models map[string]*sessions.Billed) cost {
	var c cost
	total := int64(0)
	for _, model := range slices.Sorted(maps.Keys(models)) {
		t := models[model]
		found, known := p.found[model]
		if !known {
			found.Price, found.err = p.table.Find(model, p.providers)
			p.found[model] = found
		}
		of := found.Cost(t) // without a price nothing but tokens and searches that have none
		c.usd += of.USD
		c.unpriced += of.Unpriced
		c.searches += of.Searches
		total += t.Total()
		p.miss(model, of, found.err)
	}
	c.priced = c.unpriced < total || total == 0
	return c
}

// sum returns the cost of sessions, whose own costs have noted what has no price.
func (p *pricing) sum(list []sessionView) cost {
	var sum cost
	missing := p.missing
	p.missing = map[string]*missingPrice{}
	for i := range list {
		sum.add(p.of(list[i].usage()))
	}
	p.missing = missing
	return sum
}

// rounded is the amount without the noise of binary fractions.
func (c cost) rounded() float64 { return math.Round(c.usd*1e9) / 1e9 }

// costJSON is what a session costs, in JSON.
type costJSON struct {
	Cost     *float64 `json:"cost_usd"` // null if no token has a price
	Unpriced int64    `json:"unpriced"` // tokens that are not in the cost
}

// json returns the cost as sessions have it in JSON.
func (c cost) json() costJSON {
	j := costJSON{Unpriced: c.unpriced}
	if c.priced {
		j.Cost = new(c.rounded())
	}
	return j
}

// add adds another cost.
func (c *cost) add(o cost) {
	c.usd += o.usd
	c.unpriced += o.unpriced
	c.searches += o.searches
	c.priced = c.priced || o.priced
}

// miss notes tokens and searches without a price.
func (p *pricing) miss(model string, of prices.Cost, err error) {
	if of.Unpriced == 0 && of.Searches == 0 {
		return
	}
	if p.missing[model] == nil {
		reason := "some kinds of tokens"
		if err != nil {
			reason = strings.TrimPrefix(err.Error(), prices.ErrNoPrice.Error())
		}
		p.missing[model] = &missingPrice{reason: reason}
	}
	p.missing[model].tokens += of.Unpriced
	p.missing[model].searches += of.Searches
}

// report states which table it is, and what has no price in it, the model with most tokens first.
func (p *pricing) report(w io.Writer) {
	fmt.Fprintf(w, "prices: %s\n", p.source)
	names := slices.SortedFunc(maps.Keys(p.missing), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.missing[b].tokens, p.missing[a].tokens), cmp.Compare(a, b))
	})
	for _, name := range names {
		m := p.missing[name]
		note := ""
		if m.reason != "" {
			note = " (" + m.reason + ")"
			if strings.HasPrefix(m.reason, prices.ErrAmbiguous.Error()) {
				note = " (" + m.reason + ": choose with --provider)"
			}
		}
		what := terminal.Thousands(m.tokens) + " tokens"
		if m.searches > 0 {
			what += " and " + terminal.Plural(int(m.searches), "web search request")
		}
		fmt.Fprintf(w, "no price: %s: %s are not in the cost%s\n", cmp.Or(terminal.OneLine(name), "unknown model"), what, note)
	}
}

// text writes a cost for people: a plus sign says that some tokens have no price.
func (c cost) text() string {
	switch {
	case !c.priced:
		return "?"
	case c.unpriced > 0 || c.searches > 0:
		return dollars(c.usd) + "+"
	default:
		return dollars(c.usd)
	}
}

// costText writes a cost, and the one that the vendor states.
func costText(c cost, vendor float64) string {
	text := c.text()
	if vendor > 0 {
		text += ", the vendor states " + dollars(vendor)
	}
	return text
}

// dollars writes an amount with cents, and a small one with more digits.
func dollars(usd float64) string {
	if usd != 0 && usd < 0.1 {
		return fmt.Sprintf("$%.4f", usd)
	}
	whole := int64(usd*100 + 0.5)
	return fmt.Sprintf("$%s.%02d", terminal.Thousands(whole/100), whole%100)
}
