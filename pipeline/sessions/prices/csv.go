package prices

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
)

// csvHeading names the columns of [Table.CSV].
var csvHeading = []string{"model", "above", "input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning", "web_search", "table_name", "table_date"}

// CSV returns the prices for databases: a row for each model and prompt size above which the prices apply, in US
// dollars per million tokens and per web search. A part without a price is empty. Models whose providers disagree are
// omitted.
func (t *Table) CSV() []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write(csvHeading) // writing to a buffer cannot fail
	for _, model := range slices.Sorted(maps.Keys(t.models)) {
		p, err := t.Find(model, nil)
		if err != nil {
			continue
		}
		_ = w.Write(t.csvRow(model, 0, p.Rates, p.WebSearch))
		if p.Above > 0 {
			_ = w.Write(t.csvRow(model, p.Above, *p.Large.or(&p.Rates), p.WebSearch))
		}
	}
	w.Flush()
	return out.Bytes()
}

// csvRow returns a row of rates.
func (t *Table) csvRow(model string, above int64, r Rates, webSearch *float64) []string {
	if r.Reasoning == nil {
		r.Reasoning = r.Output
	}
	row := []string{model, strconv.FormatInt(above, 10)}
	for _, part := range r.parts() {
		row = append(row, csvNumber(*part, tokensOfTablePart))
	}
	return append(row, csvNumber(webSearch, 1), t.Name, t.Date)
}

// csvNumber formats v times times, without the noise of binary fractions.
func csvNumber(v *float64, times float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v*times, 'g', 12, 64)
}
