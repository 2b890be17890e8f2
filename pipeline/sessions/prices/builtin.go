package prices

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// builtin has the prices of the models that the agents use, with source and date.
//
//go:embed builtin.tsv
var builtin string

// Builtin returns the built-in table. Its Name is the source of the prices.
func Builtin() *Table {
	t, err := readTSV(builtin)
	if err != nil {
		panic("built-in prices: " + err.Error()) // a test reads them
	}
	return t
}

// Columns of the table and their number. Prices are per million tokens.
const (
	providerColumn = iota
	modelColumn
	ratesColumn       // input, cache_read, cache_write, cache_write_1h, output, reasoning
	webSearchColumn   = ratesColumn + 6
	aboveColumn       = webSearchColumn + 1
	largeRatesColumn  = aboveColumn + 1 // like ratesColumn without reasoning
	columnCount       = largeRatesColumn + 5
	tokensOfTablePart = 1e6
)

// readTSV reads a table: comments, two of which state source and date, a heading, and a row for each model.
func readTSV(text string) (*Table, error) {
	t := &Table{models: map[string][]offer{}}
	heading := true
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			if source, ok := strings.CutPrefix(comment, "source: "); ok {
				t.Name = source
			} else if date, ok := strings.CutPrefix(comment, "date: "); ok {
				t.Date = date
			}
			continue
		}
		if heading {
			heading = false
			continue
		}
		if err := t.row(strings.Split(line, "\t")); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return t, nil
}

// row adds the price of a row.
func (t *Table) row(cells []string) error {
	if len(cells) != columnCount {
		return fmt.Errorf("%d columns, want %d", len(cells), columnCount)
	}
	var failed error
	read := func(column int, per float64) *float64 {
		if cells[column] == "" {
			return nil
		}
		n, err := strconv.ParseFloat(cells[column], 64)
		if err != nil || n < 0 {
			failed = fmt.Errorf("column %d is no number from 0 on", column+1)
		}
		n /= per
		return &n
	}
	var p Price
	for i, part := range p.Rates.parts() {
		*part = read(ratesColumn+i, tokensOfTablePart)
	}
	p.WebSearch = read(webSearchColumn, 1)
	if above := read(aboveColumn, 1); above != nil {
		p.Above = int64(*above)
	}
	for i, part := range p.Large.parts() {
		if largeRatesColumn+i < columnCount { // the table has no reasoning price for large prompts
			*part = read(largeRatesColumn+i, tokensOfTablePart)
		}
	}
	if t.models[cells[modelColumn]] != nil {
		failed = fmt.Errorf("%s occurs twice", cells[modelColumn])
	}
	t.add(cells[modelColumn], cells[providerColumn], p)
	return failed
}
