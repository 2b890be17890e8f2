package claude

import (
	"slices"
	"strings"

	"tributary/normalizers/core"
	"tributary/normalizers/lenient"
)

// maxModels is how many models of a modelUsage count.
const maxModels = 32

// modelCounts are the counts of a model in the modelUsage of a result.
type modelCounts struct {
	Input      lenient.Number `json:"inputTokens"`
	CacheRead  lenient.Number `json:"cacheReadInputTokens"`
	CacheWrite lenient.Number `json:"cacheCreationInputTokens"`
	Output     lenient.Number `json:"outputTokens"`

	lenient.Data // the rest is in the metadata
}

// modelTotal is what a model has used so far.
type modelTotal struct {
	Model lenient.Text     `json:"model"`
	Used  core.Consumption `json:"used"`
}

// modelTotals are the totals of models. They are never changed in place, because states share them.
type modelTotals []modelTotal

// readModelUsage returns the totals of a modelUsage. Its names may have the size of the window, as in
// claude-test-1[1m].
func readModelUsage(members []lenient.Member) (totals modelTotals) {
	for _, member := range members[:min(len(members), maxModels)] {
		var counts modelCounts
		lenient.ReadObject(member.Value, &counts)
		model, _, _ := strings.Cut(member.Name, "[")
		totals = totals.with(lenient.Text(core.Cut(model, core.MaxName)), core.Consumption{
			Input: counts.Input.Count(), CacheRead: counts.CacheRead.Count(),
			CacheWrite: counts.CacheWrite.Count(), Output: counts.Output.Count(),
		})
	}
	return totals
}

// with returns the totals with more of a model.
func (t modelTotals) with(model lenient.Text, more core.Consumption) modelTotals {
	t = slices.Clone(t)
	for i := range t {
		if t[i].Model == model {
			t[i].Used = t[i].Used.Plus(more)
			return t
		}
	}
	if len(t) == maxModels {
		return t
	}
	return append(t, modelTotal{model, more})
}

// of returns the total of a model.
func (t modelTotals) of(model lenient.Text) core.Consumption {
	for _, total := range t {
		if total.Model == model {
			return total.Used
		}
	}
	return core.Consumption{}
}

// sum returns the sum over all models.
func (t modelTotals) sum() (sum core.Consumption) {
	for _, total := range t {
		sum = sum.Plus(total.Used)
	}
	return sum
}

// modelWith returns the only model whose total, or growth since the last result, is figures; empty for none or
// several.
func (t modelTotals) modelWith(figures core.Consumption, last modelTotals) (model lenient.Text) {
	for _, total := range t {
		if !sameTokens(total.Used, figures) && !sameTokens(total.Used.Minus(last.of(total.Model)), figures) {
			continue
		}
		if model != "" {
			return ""
		}
		model = total.Model
	}
	return model
}

// size returns the size of the totals in memory.
func (t modelTotals) size() (size int) {
	for _, total := range t {
		size += 128 + len(total.Model)
	}
	return size
}
