package prices_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

const liteLLM = `{
  "sample_spec": {"input_cost_per_token": "the price of a token", "mode": "one of chat, embedding"},
  "opus": {"input_cost_per_token": 1e-05, "output_cost_per_token": 5e-05, "cache_read_input_token_cost": 1e-06, "cache_creation_input_token_cost": 1.25e-05, "litellm_provider": "maker", "mode": "chat"},
  "cloud/opus": {"input_cost_per_token": 9, "litellm_provider": "cloud"},
  "maker/thinker": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06, "output_cost_per_reasoning_token": 3e-06, "litellm_provider": "maker"},
  "reseller/thinker": {"input_cost_per_token": 2e-06, "output_cost_per_token": 2e-06, "litellm_provider": "reseller"},
  "hole": {"input_cost_per_token": 1e-06, "output_cost_per_token": null, "litellm_provider": "maker"},
  "painter": {"output_cost_per_image": 0.04, "litellm_provider": "maker"}
}`

const modelsDev = `{
  "maker": {"id": "maker", "models": {"opus": {"id": "opus", "cost": {"input": 10, "output": 50, "cache_read": 1, "cache_write": 12.5}}, "draft": {"id": "draft"}}},
  "plan": {"id": "plan", "models": {"opus": {"cost": {"input": 0, "output": 0}}, "gift": {"cost": {"input": 0, "output": 0}}}},
  "reseller": {"models": {"maker/opus": {"cost": {"input": 99}}, "mini": {"cost": {"input": 1, "output": 2}}}},
  "other": {"models": {"mini": {"cost": {"input": 1, "output": 3}}}}
}`

// TestCost prices tokens of five parts: 1 input, 10 read, 100 written, 1,000 output, 10,000 reasoning.
func TestCost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, model string
		providers   []string
		usd         float64
		unpriced    int64
		err         error
		says        string
	}{
		"LiteLLM": {file: liteLLM, model: "opus", usd: 1e-5 + 1e-5 + 1.25e-3 + 5e-2 + 5e-1},
		"models.dev, next to a plan that is free":       {file: modelsDev, model: "opus", usd: 1e-5 + 1e-5 + 1.25e-3 + 5e-2 + 5e-1},
		"a plan that is chosen":                         {file: modelsDev, model: "opus", providers: []string{"none", "plan"}, unpriced: 110},
		"the provider in the name; reasoning by itself": {file: liteLLM, model: "thinker", providers: []string{"maker"}, usd: 1e-6 + 2e-3 + 3e-2, unpriced: 110},
		"no price of the output":                        {file: liteLLM, model: "hole", usd: 1e-6, unpriced: 11110},
		"free for everyone":                             {file: modelsDev, model: "gift", unpriced: 110},
		"an unknown model":                              {file: liteLLM, model: "opus-5", err: prices.ErrNoPrice},
		"a model without prices of tokens":              {file: liteLLM, model: "painter", err: prices.ErrNoPrice},
		"a model without a cost":                        {file: modelsDev, model: "draft", err: prices.ErrNoPrice},
		"no model":                                      {file: liteLLM, model: "", err: prices.ErrNoPrice},
		"the sample":                                    {file: liteLLM, model: "sample_spec", err: prices.ErrNoPrice},
		"prices that differ":                            {file: modelsDev, model: "mini", err: prices.ErrAmbiguous, says: "of other, reseller"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, err := prices.Read(strings.NewReader(c.file))
			if err != nil {
				t.Fatal(err)
			}
			p, err := table.Find(c.model, c.providers)
			if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			cost := p.Cost(&sessions.Billed{Usage: envelopes.Usage{Input: 1, CacheRead: 10, CacheWrite: 100, Output: 1000, Reasoning: 10_000}})
			if math.Abs(cost.USD-c.usd) > 1e-12 || cost.Unpriced != c.unpriced {
				t.Errorf("%+v, want %v dollars and %d unpriced", cost, c.usd, c.unpriced)
			}
		})
	}
}

// TestBadFilesAreNamed has an exact error for each mistake.
func TestBadFilesAreNamed(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		``:                         "not a JSON object of models",
		`[]`:                       "not a JSON object of models",
		`{}`:                       "no prices: want model_prices",
		`{"opus":{"mode":"chat"}}`: "no prices: want model_prices",
		`{"opus":3}`:               `"opus" is not an object`,
		`{"opus":{"input_cost_per_token":"cheap"}}`:    `input_cost_per_token of "opus" is no number from 0 on`,
		`{"opus":{"output_cost_per_token":-1}}`:        `output_cost_per_token of "opus" is no number from 0 on`,
		`{"maker":{"models":[]}}`:                      `the models of "maker" are not objects with a cost`,
		`{"maker":{"models":{"o":{"cost":7}}}}`:        `the models of "maker" are not objects with a cost`,
		`{"m":{"models":{"o":{"cost":{"input":{}}}}}}`: `input of "m/o" is no number from 0 on`,
	} {
		if _, err := prices.Read(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}
