package prices_test

import (
	"encoding/csv"
	"math"
	"strconv"
	"strings"
	"testing"

	"tributary/envelopes"
	"tributary/pipeline/sessions"
	"tributary/pipeline/sessions/prices"
)

// TestCSVHasThePricesOfTheTable computes a small and a large call of every model from the rows of the CSV.
func TestCSVHasThePricesOfTheTable(t *testing.T) {
	t.Parallel()
	table := prices.Builtin()
	rows, err := csv.NewReader(strings.NewReader(string(table.CSV()))).ReadAll()
	if err != nil || len(rows) < 100 || rows[0][0] != "model" || rows[1][10] != table.Date {
		t.Fatalf("%v, %d rows", err, len(rows))
	}
	large := 0
	for _, row := range rows[1:] {
		number := make([]float64, len(row))
		for i := range row[:9] {
			if i > 0 && row[i] != "" {
				if number[i], err = strconv.ParseFloat(row[i], 64); err != nil {
					t.Fatal(err)
				}
			}
		}
		price, err := table.Find(row[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		var used sessions.Billed
		used.Add(&envelopes.Usage{
			Input: 1e6, CacheRead: 2e6, CacheWrite: 7e6, CacheWrite1h: 3e6, Output: 4e6, Reasoning: 5e6, WebSearchRequests: 6, Prompt: int64(number[1]) + 1,
		})
		want := price.Cost(&used).USD
		got := number[2] + 2*number[3] + 4*number[4] + 3*number[5] + 4*number[6] + 5*number[7] + 6*number[8]
		if math.Abs(got-want) > 1e-6 || got == 0 {
			t.Errorf("%s above %s: %v dollars, want %v", row[0], row[1], got, want)
		}
		if number[1] > 0 {
			large++
		}
	}
	if large == 0 {
		t.Error("no row is of large prompts")
	}
}
