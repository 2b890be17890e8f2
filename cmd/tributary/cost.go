package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"tributary/cmd/internal/terminal"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

// pricing computes costs with a price file, and collects what has no price.
type pricing struct {
	table     *prices.Table
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

// newPricing reads a price file; without a name there are no costs, and the result is nil.
func newPricing(name string, providers []string) (*pricing, error) {
	if name == "" {
		if len(providers) > 0 {
			return nil, usageError{fmt.Errorf("--provider chooses between the prices of a file: pass --prices FILE, too")}
		}
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("price file: %w", err)
	}
	defer f.Close()
	table, err := prices.Read(f)
	if err != nil {
		return nil, fmt.Errorf("price file %s: %w", name, err)
	}
	return &pricing{table: table, providers: providers, found: map[string]foundPrice{}, missing: map[string]*missingPrice{}}, nil
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

// report states what has no price, the model with most tokens first.
func (p *pricing) report(w io.Writer) {
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

// dollars writes an amount with cents, and a small one with more digits.
func dollars(usd float64) string {
	if usd != 0 && usd < 0.1 {
		return fmt.Sprintf("$%.4f", usd)
	}
	whole := int64(usd*100 + 0.5)
	return fmt.Sprintf("$%s.%02d", terminal.Thousands(whole/100), whole%100)
}
