package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"tributary/cmd/internal/figures"
	"tributary/pipeline/sessions"
)

// pricesHelp explains costs in the help of commands.
const pricesHelp = `The cost is in US dollars, at the built-in list prices, or those of --prices: a file of
LiteLLM (model_prices_and_context_window.json) or models.dev (api.json). The output
names the table and its date. Cache writes of an hour, prompts above a size and web
searches have prices of their own. It leaves out tokens without a price: their models
are printed, a plus sign marks the amount, and JSON has their number as unpriced.`

// pricesFlags adds the flags that choose a table.
func pricesFlags(flags *pflag.FlagSet, file *string, providers *[]string) {
	flags.StringVar(file, "prices", "", "price `file` of LiteLLM or models.dev, in place of the built-in table")
	flags.StringSliceVar(providers, "provider", nil, "providers whose prices count, the first first")
}

// newPricing reads a price file; an empty name stands for the built-in table.
func newPricing(name string, providers []string) (*figures.Pricing, error) {
	switch {
	case name != "":
		return figures.ReadPricing(name, providers)
	case len(providers) > 0:
		return nil, usageError{errors.New("--provider chooses between the prices of a file: pass --prices FILE, too")}
	default:
		return figures.BuiltinPricing(), nil
	}
}

// reportPrices prints which prices were used, and which models of the sessions have none.
func reportPrices(w io.Writer, pricing *figures.Pricing, list []sessionView) {
	models := map[string]*sessions.Billed{}
	for i := range list {
		for model, tokens := range list[i].usage() {
			models = sessions.AddTokens(models, model, tokens)
		}
	}
	fmt.Fprintf(w, "prices: %s\n", pricing.Source())
	reportUnpriced(w, "no price", pricing.Unpriced(models))
}

// reportUnpriced prints which models have no price.
func reportUnpriced(w io.Writer, what string, list []figures.Unpriced) {
	for i := range list {
		fmt.Fprintf(w, "%s: %s\n", what, list[i].Text())
	}
}

// totalCost returns the cost of sessions.
func totalCost(list []sessionView, pricing *figures.Pricing) (sum figures.Cost) {
	for i := range list {
		sum.Add(pricing.Cost(list[i].usage()))
	}
	return sum
}

// costText writes a cost, and the cost that the vendor states.
func costText(c figures.Cost, vendor float64) string {
	text := c.Text()
	if vendor > 0 {
		text += ", the vendor states " + figures.Dollars(vendor)
	}
	return text
}
