package core

import (
	"testing"

	"pgregory.net/rapid"

	"tributary/normalizers/lenient"
)

// TestConsumptionIsReadBack writes figures of any size, and reads them: whole they are equal, cut off they are
// damaged.
func TestConsumptionIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a Consumption
		for _, v := range a.parts() {
			*v = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, lenient.MaxExact)).Draw(t, "figure")
		}
		data := a.append(nil)
		if len(data) != a.encodedSize() {
			t.Errorf("%d bytes, measured as %d", len(data), a.encodedSize())
		}
		if b, n := readConsumption(append(data, 1)); b != a || n != len(data) {
			t.Errorf("%d bytes give %+v, want %d and %+v", n, b, len(data), a)
		}
		for n := range data {
			if _, read := readConsumption(data[:n]); read != 0 {
				t.Errorf("%d of %d bytes are read as whole", n, len(data))
			}
		}
	})
}

// TestPartOfAnHourIsWithinItsEvent has calls whose figures of an hour and of all cache writes grow at different times.
func TestPartOfAnHourIsWithinItsEvent(t *testing.T) {
	t.Parallel()
	figures := []Consumption{
		{CacheWrite: 100},
		{CacheWrite: 100, CacheWrite1h: 100}, // stated late: nothing of it is on an event
		{CacheWrite: 150, CacheWrite1h: 150},
	}
	want := []int64{0, -1, 50}
	var before Consumption
	for i, now := range figures {
		u := now.UsageSince(before, "k")
		switch {
		case want[i] < 0 && u != nil, want[i] >= 0 && (u == nil || u.CacheWrite1h != want[i]):
			t.Errorf("record %d: %+v, want %d of an hour", i, u, want[i])
		}
		before = now
	}
}
