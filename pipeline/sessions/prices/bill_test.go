package prices_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

// tiers has a model with a price of its own for each part, for large prompts, and for a search.
const tiers = `{
  "tiered": {
    "input_cost_per_token": 1e-06, "cache_read_input_token_cost": 1e-07, "cache_creation_input_token_cost": 2e-06, "cache_creation_input_token_cost_above_1hr": 3e-06,
    "output_cost_per_token": 5e-06, "input_cost_per_token_above_200k_tokens": 1e-05, "cache_creation_input_token_cost_above_200k_tokens": 2e-05,
    "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 3e-05, "output_cost_per_token_above_200k_tokens": 5e-05,
    "search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_high": 0.01}
  },
  "codex": {"input_cost_per_token": 1e-06, "input_cost_per_token_above_272k_tokens": 2e-06, "search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_high": 0.02}},
  "plain": {"input_cost_per_token": 1e-06, "cache_creation_input_token_cost": 2e-06}
}`

const tiersOfModelsDev = `{"maker": {"models": {"tiered": {"cost": {"input": 1, "output": 5, "context_over_200k": {"input": 10, "output": 50}}}}}}`

// TestLargePromptsSearchesAndHours prices the usage of one call each.
func TestLargePromptsSearchesAndHours(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, model string
		usage       envelopes.Usage
		want        prices.Cost
	}{
		"an hour and five minutes": {tiers, "tiered", envelopes.Usage{CacheWrite: 30, CacheWrite1h: 10}, prices.Cost{USD: 20*2e-6 + 10*3e-6}},
		"an hour without a price":  {tiers, "plain", envelopes.Usage{CacheWrite: 30, CacheWrite1h: 10}, prices.Cost{USD: 20 * 2e-6, Unpriced: 10}},
		"a prompt at the size":     {tiers, "tiered", envelopes.Usage{Input: 2, Output: 3, Prompt: 200_000}, prices.Cost{USD: 2*1e-6 + 3*5e-6}},
		"a prompt above it, with reasoning": {
			tiers, "tiered",
			envelopes.Usage{Input: 2, CacheRead: 10, CacheWrite: 7, CacheWrite1h: 3, Output: 3, Reasoning: 4, Prompt: 200_001},
			prices.Cost{USD: 2*1e-5 + 10*1e-7 + 4*2e-5 + 3*3e-5 + 7*5e-5},
		},
		"a prompt above another size":     {tiers, "codex", envelopes.Usage{Input: 2, Prompt: 272_000}, prices.Cost{USD: 2 * 1e-6}},
		"a prompt above the larger size":  {tiers, "codex", envelopes.Usage{Input: 2, Prompt: 272_001}, prices.Cost{USD: 2 * 2e-6}},
		"no size of the prompt":           {tiers, "tiered", envelopes.Usage{Input: 300_000}, prices.Cost{USD: 0.3}},
		"searches":                        {tiers, "tiered", envelopes.Usage{WebSearchRequests: 3}, prices.Cost{USD: 0.03}},
		"searches of prices that differ":  {tiers, "codex", envelopes.Usage{WebSearchRequests: 3}, prices.Cost{Searches: 3}},
		"a prompt of models.dev":          {tiersOfModelsDev, "tiered", envelopes.Usage{Input: 2, Output: 3, Prompt: 200_001}, prices.Cost{USD: 2*1e-5 + 3*5e-5}},
		"a usual prompt of models.dev":    {tiersOfModelsDev, "tiered", envelopes.Usage{Input: 2, Output: 3, Prompt: 9}, prices.Cost{USD: 2*1e-6 + 3*5e-6}},
		"an hour is not in models.dev":    {tiersOfModelsDev, "tiered", envelopes.Usage{CacheWrite: 3, CacheWrite1h: 3}, prices.Cost{Unpriced: 3}},
		"what a large prompt writes none": {tiers, "plain", envelopes.Usage{Input: 2, Prompt: 300_000}, prices.Cost{USD: 2e-6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, err := prices.Read(strings.NewReader(c.file))
			if err != nil {
				t.Fatal(err)
			}
			p, err := table.Find(c.model, nil)
			if err != nil {
				t.Fatal(err)
			}
			var tokens sessions.Billed
			tokens.Add(&c.usage)
			got := p.Cost(&tokens)
			if math.Abs(got.USD-c.want.USD) > 1e-12 {
				t.Errorf("%v dollars, want %v", got.USD, c.want.USD)
			}
			if got.USD = c.want.USD; got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestBillMadeByHand prices calls of three models with the table that is built in, as their bill states them.
func TestBillMadeByHand(t *testing.T) {
	t.Parallel()
	table := prices.Builtin()
	bill := 0.0
	for _, c := range []struct {
		model string
		usage envelopes.Usage
		usd   float64
	}{
		{
			"claude-opus-4-5-20251101",
			envelopes.Usage{Input: 3, CacheWrite: 20_000, CacheWrite1h: 15_000, Output: 405, WebSearchRequests: 2, Prompt: 20_003},
			0.000015 + 0.03125 + 0.15 + 0.010125 + 0.02,
		},
		{
			"claude-sonnet-4-5-20250929",
			envelopes.Usage{Input: 1000, CacheRead: 180_000, CacheWrite: 30_000, CacheWrite1h: 30_000, Output: 700, Prompt: 211_000},
			0.006 + 0.108 + 0.36 + 0.01575,
		},
		{"claude-haiku-4-5-20251001", envelopes.Usage{Input: 10, CacheRead: 50_000, Output: 20, Prompt: 50_010}, 0.00511},
		{"gpt-5.4", envelopes.Usage{Input: 100_000, CacheRead: 200_000, Output: 1000, Reasoning: 1000, Prompt: 300_000}, 0.5 + 0.1 + 0.045},
		{"gemini-2.5-pro", envelopes.Usage{Input: 100_000, CacheRead: 50_000, Output: 1000, Reasoning: 1000, Prompt: 150_000}, 0.125 + 0.00625 + 0.02},
	} {
		p, err := table.Find(c.model, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.model, err)
		}
		var tokens sessions.Billed
		tokens.Add(&c.usage)
		got := p.Cost(&tokens)
		if math.Abs(got.USD-c.usd) > 1e-12 || got.Unpriced != 0 || got.Searches != 0 {
			t.Errorf("%s: %+v, want %v dollars", c.model, got, c.usd)
		}
		bill += got.USD
	}
	if math.Abs(bill-1.5025) > 1e-9 {
		t.Errorf("a bill of %v dollars, want 1.5025", bill)
	}
}

// TestBuiltinTableIsDated reads the table that is built in: it has a source, a date, and a price of input and
// output for each model.
func TestBuiltinTableIsDated(t *testing.T) {
	t.Parallel()
	table := prices.Builtin()
	if _, err := time.Parse(time.DateOnly, table.Date); err != nil || table.Name == "" {
		t.Errorf("source %q, date %q", table.Name, table.Date)
	}
	for _, model := range []string{"claude-opus-4-6", "claude-sonnet-4.6", "gpt-5.3-codex", "gpt-5-mini", "gemini-3.1-pro-preview"} {
		if p, err := table.Find(model, nil); err != nil || p.Input == nil || p.Output == nil {
			t.Errorf("%s: %+v, %v", model, p, err)
		}
	}
}
