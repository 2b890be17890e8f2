package main

import "slices"

// topList keeps the first values of an order, in memory for twice as many.
type topList[T any] struct {
	limit  int // 0 for all
	order  func(a, b T) int
	values []T
	left   int // values beyond the limit
}

// add adds a value.
func (l *topList[T]) add(v *T) error {
	l.values = append(l.values, *v)
	if l.limit > 0 && len(l.values) >= 2*l.limit {
		l.cut()
	}
	return nil
}

// cut sorts the values and drops those beyond the limit.
func (l *topList[T]) cut() {
	slices.SortFunc(l.values, l.order)
	if l.limit > 0 && len(l.values) > l.limit {
		l.left += len(l.values) - l.limit
		clear(l.values[l.limit:])
		l.values = l.values[:l.limit]
	}
}

// sorted returns the values in their order.
func (l *topList[T]) sorted() []T {
	l.cut()
	return l.values
}
