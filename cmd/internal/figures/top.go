package figures

import "slices"

// Top keeps the first Limit values of an order. It needs memory for twice as many.
type Top[T any] struct {
	Limit int // 0 for all
	Order func(a, b T) int
	Left  int // values beyond the limit; valid after [Top.Sorted]

	values []T
}

// Add adds a value.
func (t *Top[T]) Add(v *T) {
	t.values = append(t.values, *v)
	if t.Limit > 0 && len(t.values) >= 2*t.Limit {
		t.cut()
	}
}

// cut sorts the values and drops those beyond the limit.
func (t *Top[T]) cut() {
	slices.SortFunc(t.values, t.Order)
	if t.Limit > 0 && len(t.values) > t.Limit {
		t.Left += len(t.values) - t.Limit
		clear(t.values[t.Limit:])
		t.values = t.values[:t.Limit]
	}
}

// Sorted returns the values in order.
func (t *Top[T]) Sorted() []T {
	t.cut()
	return t.values
}
