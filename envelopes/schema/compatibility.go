package schema

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Direction is the direction of a compatibility check: whose events are read with which schema.
type Direction string

// The directions.
const (
	Backward Direction = "backward" // events of the old schema are read with the new one
	Forward  Direction = "forward"  // events of the new schema are read with the old one
	Full     Direction = "full"     // both
)

// Directions lists every direction.
var Directions = []Direction{Backward, Forward, Full}

// Difference is one difference between two schemas.
type Difference struct {
	Pointer string `json:"pointer"` // JSON Pointer into the new schema; for something that it lacks, into the old one
	Change  string `json:"change"`
	// Backward and Forward say why the difference breaks readers in that direction; empty if it does not.
	Backward string `json:"backward,omitzero"`
	Forward  string `json:"forward,omitzero"`
}

// Breaks returns why the difference breaks readers; empty if it does not.
func (d Difference) Breaks(direction Direction) string {
	switch direction {
	case Backward:
		return d.Backward
	case Forward:
		return d.Forward
	default:
		return cmp.Or(d.Backward, d.Forward)
	}
}

// Compare returns the differences between two schemas, ordered by pointer. Annotations (descriptions, titles,
// examples, $id) do not count.
//
// Backward, the new schema must accept what the old one accepts. Forward, the old one must accept what the new one
// accepts, except for unknown fields and enum values, because consumers ignore these, see [open]. Removing a property
// breaks both. A schema is assumed to describe all fields that its producer writes, so a new property that is not
// required breaks nothing, even if the old schema accepts unknown fields.
//
// Compare reports as breaking what it cannot judge: changed conditions, negations, patterns, overlapping
// alternatives, and unknown keywords. References must stay within the document. The error concerns a document that is
// not a JSON Schema.
func Compare(older, newer []byte) ([]Difference, error) {
	for name, document := range map[string][]byte{"old": older, "new": newer} {
		if _, err := Compile(document); err != nil {
			return nil, fmt.Errorf("%s schema: %w", name, err)
		}
	}
	c := newComparison()
	var err error
	if c.old.root, err = jsonschema.UnmarshalJSON(bytes.NewReader(older)); err != nil {
		return nil, err
	}
	if c.new.root, err = jsonschema.UnmarshalJSON(bytes.NewReader(newer)); err != nil {
		return nil, err
	}
	if sameJSON(c.old.root, c.new.root) {
		return nil, nil
	}
	c.compare(place{value: c.old.root}, place{value: c.new.root})
	slices.SortFunc(c.found, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Change, b.Change))
	})
	return slices.Compact(c.found), nil
}

// comparison compares two documents.
type comparison struct {
	old, new document
	seen     map[[2]place]bool            // pairs of places already compared, without their values
	same     map[[2]jsontext.Pointer]bool // whether the targets of two references are equal
	found    []Difference
	trial    bool // the result is not reported
}

func newComparison() *comparison {
	return &comparison{seen: map[[2]place]bool{}, same: map[[2]jsontext.Pointer]bool{}}
}

// What a difference means in each direction.
const (
	refusesOld = "a reader of the new schema refuses events of the old one"
	refusesNew = "a reader of the old schema refuses events of the new one"
)

// narrowed notes that the new schema accepts less.
func (c *comparison) narrowed(at jsontext.Pointer, format string, args ...any) {
	c.found = append(c.found, Difference{string(at), fmt.Sprintf(format, args...), refusesOld, ""})
}

// widened notes that the new schema accepts more.
func (c *comparison) widened(at jsontext.Pointer, format string, args ...any) {
	c.found = append(c.found, Difference{string(at), fmt.Sprintf(format, args...), "", refusesNew})
}

// opened notes that the new schema accepts more, of a kind that consumers of the old one ignore.
func (c *comparison) opened(at jsontext.Pointer, format string, args ...any) {
	c.found = append(c.found, Difference{string(at), fmt.Sprintf(format, args...), "", ""})
}

// breaking notes a difference that breaks both directions.
func (c *comparison) breaking(at jsontext.Pointer, why, format string, args ...any) {
	c.found = append(c.found, Difference{string(at), fmt.Sprintf(format, args...), why, why})
}

// unjudged notes a difference that cannot be judged.
func (c *comparison) unjudged(at jsontext.Pointer, format string, args ...any) {
	c.breaking(at, "it cannot be judged", format, args...)
}

// compare compares two schemas.
func (c *comparison) compare(older, newer place) {
	if older.value == true && newer.value == true {
		return
	}
	pair := [2]place{{at: older.at, part: older.part}, {at: newer.at, part: newer.part}}
	if c.seen[pair] {
		return
	}
	c.seen[pair] = true
	c.views(c.old.view(older), c.new.view(newer))
}

// views compares the constraints of two schemas.
func (c *comparison) views(o, n *view) {
	switch {
	case o.never && n.never:
		return
	case n.never:
		c.narrowed(n.at, "accepts nothing")
		return
	case o.never:
		c.widened(n.at, "accepts something")
		return
	}
	c.types(o, n)
	c.values(o, n)
	c.bounds(o, n)
	c.assertions(o, n)
	c.required(o, n)
	c.properties(o, n)
	c.unknownFields(o, n)
	c.items(o, n)
	c.alternatives("anyOf", o, n)
	c.alternatives("oneOf", o, n)
	c.conditions(o, n)
	c.conjuncts(o, n)
	c.others(o, n)
}

// types compares the types.
func (c *comparison) types(o, n *view) {
	_, inOld := o.keywords["type"]
	_, inNew := n.keywords["type"]
	if !inOld && !inNew {
		return // if anything differs, it is the values or alternatives
	}
	before, after := o.types(), n.types()
	for _, t := range typeNames {
		if t == "integer" && before["number"] && after["number"] {
			continue
		}
		switch {
		case before[t] && !after[t]:
			c.narrowed(n.of("type"), "type %s is gone", t)
		case !before[t] && after[t]:
			c.widened(n.of("type"), "type %s is new", t)
		}
	}
}

// values compares enums and constants.
func (c *comparison) values(o, n *view) {
	before, wasEnum := o.values()
	after, isEnum := n.values()
	at := n.of("enum")
	if _, ok := n.keywords["const"]; ok {
		at = n.of("const")
	}
	widen := c.widened
	if wasEnum {
		widen = c.opened
	}
	switch {
	case before == nil && after == nil:
	case before == nil:
		c.narrowed(at, "values are limited to %s", jsonList(after))
	case after == nil:
		widen(at, "values are not limited any more")
	case !wasEnum && !isEnum && !sameJSON(before[0], after[0]):
		c.breaking(at, "a constant never changes", "constant %s is %s now", jsonList(before), jsonList(after))
	default:
		for _, v := range before {
			if !hasValue(after, v) {
				c.narrowed(at, "value %s is gone", jsonList([]any{v}))
			}
		}
		for _, v := range after {
			if !hasValue(before, v) {
				widen(at, "value %s is new", jsonList([]any{v}))
			}
		}
	}
}

// limits are the keywords that bound a number or a size: 1 for upper bounds, -1 for lower ones.
var limits = map[string]int{
	"minimum": -1, "exclusiveMinimum": -1, "minLength": -1, "minItems": -1, "minProperties": -1,
	"maximum": 1, "exclusiveMaximum": 1, "maxLength": 1, "maxItems": 1, "maxProperties": 1,
}

// bounds compares the bounds of numbers and sizes.
func (c *comparison) bounds(o, n *view) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		before, inOld := o.keywords[name]
		after, inNew := n.keywords[name]
		switch {
		case !inOld && !inNew:
		case !inOld:
			c.narrowed(n.of(name), "%s %v is new", name, after.value)
		case !inNew:
			c.widened(before.at, "%s %v is gone", name, before.value)
		default:
			switch higher := compareNumbers(after.value, before.value) * limits[name]; {
			case higher > 0:
				c.widened(n.of(name), "%s %v is %v now", name, before.value, after.value)
			case higher < 0:
				c.narrowed(n.of(name), "%s %v is %v now", name, before.value, after.value)
			}
		}
	}
}

// assertions compares keywords whose values cannot be ordered.
func (c *comparison) assertions(o, n *view) {
	for _, name := range []string{"pattern", "format", "multipleOf", "uniqueItems"} {
		before, inOld := o.keywords[name]
		after, inNew := n.keywords[name]
		if name == "uniqueItems" {
			inOld, inNew = inOld && before.value == true, inNew && after.value == true
		}
		switch {
		case !inOld && !inNew, inOld && inNew && sameJSON(before.value, after.value):
		case !inOld:
			c.narrowed(n.of(name), "%s %v is new", name, after.value)
		case !inNew:
			c.widened(before.at, "%s %v is gone", name, before.value)
		default:
			c.unjudged(n.of(name), "%s %v is %v now", name, before.value, after.value)
		}
	}
}

// required compares the required fields.
func (c *comparison) required(o, n *view) {
	before, after := o.required(), n.required()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !before[name] {
			c.narrowed(n.of("required"), "%q is required now", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !after[name] {
			c.widened(n.of("required"), "%q is not required any more", name)
		}
	}
}

// properties compares the fields.
func (c *comparison) properties(o, n *view) {
	before, after := o.properties(), n.properties()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if was, ok := before[name]; ok {
			c.compare(was, after[name])
			continue
		}
		c.opened(after[name].at, "property is new")
		if unknown, ok := o.keywords["additionalProperties"]; ok && isObject(unknown.value) {
			c.compare(unknown, after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; !ok {
			c.breaking(before[name].at, "a field is never removed: its readers miss it", "property is gone")
		}
	}
}

// unknownFields compares how the schemas treat fields that they do not name.
func (c *comparison) unknownFields(o, n *view) {
	for _, name := range []string{"additionalProperties", "unevaluatedProperties"} {
		before, after := o.child(name), n.child(name)
		switch wasClosed, isClosed := before.value == false, after.value == false; {
		case wasClosed && !isClosed:
			c.opened(after.at, "unknown fields pass")
		case !wasClosed && isClosed:
			c.narrowed(after.at, "unknown fields are refused")
		case !wasClosed:
			c.compare(before, after)
		}
	}
}

// items compares the elements of arrays.
func (c *comparison) items(o, n *view) {
	before, after := o.list("prefixItems"), n.list("prefixItems")
	if len(before) != len(after) {
		c.unjudged(n.of("prefixItems"), "the elements of the tuple are others")
		return
	}
	for i := range before {
		c.compare(before[i], after[i])
	}
	c.compare(o.child("items"), n.child("items"))
}

// alternatives compares anyOf or oneOf.
func (c *comparison) alternatives(keyword string, o, n *view) {
	before, after := o.list(keyword), n.list(keyword)
	switch {
	case before == nil && after == nil:
		return
	case before == nil:
		if keyword == "anyOf" && slices.ContainsFunc(after, func(p place) bool { return c.accepts(o, c.new.view(p)) }) {
			c.widened(n.of(keyword), "alternatives are new")
		} else {
			c.narrowed(n.of(keyword), "%s is new", keyword)
		}
		return
	case after == nil:
		c.widened(o.of(keyword), "%s is gone", keyword)
		return
	}
	pairs, removed, added := c.pair(before, after)
	if keyword == "oneOf" && !(c.old.disjoint(before) && c.new.disjoint(after)) {
		for _, p := range pairs {
			if !c.equal(p[0].value, p[1].value) {
				c.unjudged(p[1].at, "an alternative of oneOf that can overlap others has changed")
			}
		}
		for _, p := range slices.Concat(removed, added) {
			c.unjudged(p.at, "an alternative of oneOf that can overlap others is new or gone")
		}
		return
	}
	for _, p := range pairs {
		c.compare(p[0], p[1])
	}
	for _, p := range removed {
		c.narrowed(p.at, "alternative is gone")
	}
	for _, p := range added {
		c.widened(p.at, "alternative is new")
	}
}

// accepts reports whether n certainly accepts all that o accepts.
func (c *comparison) accepts(o, n *view) bool {
	if c.trial {
		return false // one level suffices, and keeps the number of trials small
	}
	trial := newComparison()
	trial.old, trial.new, trial.trial = c.old, c.new, true
	trial.views(o, n)
	return !slices.ContainsFunc(trial.found, func(d Difference) bool { return d.Backward != "" })
}

// pair pairs the schemas of two lists: first equal ones, then those with the same reference or types, then the rest
// in order.
func (c *comparison) pair(before, after []place) (pairs [][2]place, removed, added []place) {
	removed, added = slices.Clone(before), slices.Clone(after)
	for _, alike := range []func(a, b place) bool{
		func(a, b place) bool { return c.equal(a.value, b.value) },
		func(a, b place) bool { return reference(a) != "" && reference(a) == reference(b) },
		func(a, b place) bool { return maps.Equal(c.old.view(a).types(), c.new.view(b).types()) },
	} {
		removed = slices.DeleteFunc(removed, func(a place) bool {
			i := slices.IndexFunc(added, func(b place) bool { return alike(a, b) })
			if i >= 0 {
				pairs = append(pairs, [2]place{a, added[i]})
				added = slices.Delete(added, i, i+1)
			}
			return i >= 0
		})
	}
	return pairs, removed, added
}

// conditions compares if, then and else.
func (c *comparison) conditions(o, n *view) {
	added := slices.Clone(n.conditions)
	for _, before := range o.conditions {
		i := slices.IndexFunc(added, func(after place) bool {
			return c.equal(member(before, "if").value, member(after, "if").value)
		})
		if i < 0 {
			if !c.new.excludes(n, before) {
				c.unjudged(before.at, "condition is gone or has changed")
			}
			continue
		}
		c.compare(member(before, "then"), member(added[i], "then"))
		c.compare(member(before, "else"), member(added[i], "else"))
		added = slices.Delete(added, i, i+1)
	}
	for _, after := range added {
		if c.old.excludes(o, after) {
			c.opened(after.at, "condition is new, of values that the old schema does not have")
		} else {
			c.narrowed(after.at, "condition is new")
		}
	}
}

// conjuncts compares the schemas that also apply.
func (c *comparison) conjuncts(o, n *view) {
	pairs, removed, added := c.pair(o.conjuncts, n.conjuncts)
	for _, p := range pairs {
		c.compare(p[0], p[1])
	}
	for _, p := range removed {
		c.widened(p.at, "schema does not apply any more")
	}
	for _, p := range added {
		c.narrowed(p.at, "schema applies now")
	}
}

// judged are the keywords with a comparison of their own.
var judged = map[string]bool{
	"type": true, "enum": true, "const": true, "pattern": true, "format": true, "multipleOf": true, "uniqueItems": true,
	"required": true, "properties": true, "additionalProperties": true, "unevaluatedProperties": true,
	"items": true, "prefixItems": true, "anyOf": true, "oneOf": true,
}

// opaque are the keywords that can change the target of a reference. A $ref among the keywords of a view has no
// target in the document.
var opaque = map[string]bool{"$ref": true, "$dynamicRef": true, "$recursiveRef": true, "$id": true}

// others compares all other keywords, only for equality.
func (c *comparison) others(o, n *view) {
	names := maps.Clone(o.keywords)
	maps.Copy(names, n.keywords)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if judged[name] || limits[name] != 0 {
			continue
		}
		before, inOld := o.keywords[name]
		after, inNew := n.keywords[name]
		switch {
		case opaque[name]:
			c.unjudged(n.of(name), "%s is not followed", name)
		case inOld && inNew && c.equalKeyword(name, before.value, after.value):
		case !inOld:
			c.unjudged(after.at, "%s is new", name)
		case !inNew:
			c.unjudged(before.at, "%s is gone", name)
		default:
			c.unjudged(after.at, "%s has changed", name)
		}
	}
}
