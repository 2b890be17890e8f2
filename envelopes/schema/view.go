package schema

import (
	"encoding/json"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// place is a schema, or another part of a document.
type place struct {
	at    jsontext.Pointer
	part  bool // of the keywords of the schema
	value any
}

// member returns the schema under a keyword of a schema; one that accepts everything if the keyword is missing.
func member(p place, name string) place {
	object, _ := p.value.(map[string]any)
	value, ok := object[name]
	if !ok {
		value = true
	}
	return place{at: p.at.AppendToken(name), value: value}
}

// reference returns the $ref of a schema; empty for none.
func reference(p place) string {
	object, _ := p.value.(map[string]any)
	ref, _ := object["$ref"].(string)
	return ref
}

// view is a schema with its references resolved: its constraints by keyword.
type view struct {
	at         jsontext.Pointer
	never      bool // accepts nothing
	keywords   map[string]place
	conditions []place // schemas with if, then and else
	conjuncts  []place // schemas that also apply and have a common keyword with another meaning
}

// document is a schema document.
type document struct{ root any }

// annotations are the keywords without a constraint.
var annotations = map[string]bool{
	"$schema": true, "$id": true, "$anchor": true, "$comment": true, "$defs": true, "$vocabulary": true,
	"title": true, "description": true, "default": true, "examples": true, "deprecated": true, "readOnly": true, "writeOnly": true,
	"contentEncoding": true, "contentMediaType": true, "contentSchema": true,
}

// view returns the view of a schema.
func (d document) view(p place) *view {
	v := &view{at: p.at, keywords: map[string]place{}}
	d.add(v, p, map[jsontext.Pointer]bool{})
	d.mergeNull(v)
	return v
}

// add adds the constraints of a schema to a view. within has the places being added.
func (d document) add(v *view, p place, within map[jsontext.Pointer]bool) {
	if p.value == false {
		v.never = true
	}
	object, ok := p.value.(map[string]any)
	if !ok || within[p.at] {
		return
	}
	within[p.at] = true
	own := map[string]place{}
	for name, value := range object {
		at := p.at.AppendToken(name)
		switch {
		case annotations[name] && (name != "$id" || p.at == ""), name == "then", name == "else", name == "allOf":
		case name == "if":
			v.conditions = append(v.conditions, p)
		case name == "$ref" && d.resolves(value):
		default:
			own[name] = place{at: at, value: value}
		}
	}
	if overlap(v.keywords, own) {
		v.conjuncts = append(v.conjuncts, place{p.at, true, withoutRest(object)})
	} else {
		maps.Copy(v.keywords, own)
	}
	if target, ok := d.resolve(object["$ref"]); ok {
		d.add(v, target, within)
	}
	all, _ := object["allOf"].([]any)
	for i, value := range all {
		d.add(v, place{at: p.at.AppendToken("allOf").AppendToken(strconv.Itoa(i)), value: value}, within)
	}
}

// withoutRest returns a schema without the parts that a view keeps beside its keywords.
func withoutRest(object map[string]any) map[string]any {
	rest := maps.Clone(object)
	for _, name := range []string{"$ref", "allOf", "if", "then", "else"} {
		delete(rest, name)
	}
	return rest
}

// coupled are groups of keywords that change their meaning beside those of another schema.
var coupled = [][]string{
	{"properties", "patternProperties", "additionalProperties"},
	{"items", "prefixItems"},
	{"contains", "minContains", "maxContains"},
}

// overlap reports whether the keywords of two schemas cannot be joined.
func overlap(a, b map[string]place) bool {
	for name := range b {
		if _, ok := a[name]; ok {
			return true
		}
	}
	has := func(keywords map[string]place) func(string) bool {
		return func(name string) bool { _, ok := keywords[name]; return ok }
	}
	return slices.ContainsFunc(coupled, func(group []string) bool {
		return slices.ContainsFunc(group, has(a)) && slices.ContainsFunc(group, has(b))
	})
}

// mergeNull replaces two alternatives, one of which is null, by one schema whose type may be null. Both mean the
// same.
func (d document) mergeNull(v *view) {
	alternatives := v.list("anyOf")
	if len(alternatives) != 2 {
		return
	}
	i := slices.IndexFunc(alternatives, func(p place) bool {
		return reflect.DeepEqual(p.value, map[string]any{"type": "null"})
	})
	if i < 0 {
		return
	}
	other := &view{at: v.at, keywords: map[string]place{}}
	d.add(other, alternatives[1-i], map[jsontext.Pointer]bool{})
	rest := maps.Clone(v.keywords)
	delete(rest, "anyOf")
	typed, ok := other.keywords["type"]
	if _, constant := other.keywords["const"]; !ok || constant || other.never || other.conditions != nil || other.conjuncts != nil || overlap(rest, other.keywords) {
		return
	}
	for _, name := range []string{"anyOf", "oneOf", "not", "$ref", "$dynamicRef"} {
		if _, ok := other.keywords[name]; ok {
			return // it would not accept null
		}
	}
	types, isList := typed.value.([]any)
	if !isList {
		types = []any{typed.value}
	}
	other.keywords["type"] = place{at: typed.at, value: append(slices.Clone(types), "null")}
	if enum, ok := other.keywords["enum"]; ok {
		values, _ := enum.value.([]any)
		other.keywords["enum"] = place{at: enum.at, value: append(slices.Clone(values), nil)}
	}
	maps.Copy(rest, other.keywords)
	v.keywords = rest
}

// resolves reports whether a $ref leads to a place of the document.
func (d document) resolves(ref any) bool {
	_, ok := d.resolve(ref)
	return ok
}

// resolve returns the place to which a $ref leads.
func (d document) resolve(ref any) (place, bool) {
	text, _ := ref.(string)
	pointer, ok := strings.CutPrefix(text, "#")
	if !ok || pointer != "" && pointer[0] != '/' || strings.Contains(pointer, "%") {
		return place{}, false
	}
	value := d.root
	for token := range jsontext.Pointer(pointer).Tokens() {
		switch at := value.(type) {
		case map[string]any:
			if value, ok = at[token]; !ok {
				return place{}, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at) {
				return place{}, false
			}
			value = at[i]
		default:
			return place{}, false
		}
	}
	return place{at: jsontext.Pointer(pointer), value: value}, true
}

// of returns the pointer of a keyword, or of the schema if the keyword is missing.
func (v *view) of(keyword string) jsontext.Pointer {
	if p, ok := v.keywords[keyword]; ok {
		return p.at
	}
	return v.at
}

// child returns the schema under a keyword; one that accepts everything if the keyword is missing.
func (v *view) child(keyword string) place {
	if p, ok := v.keywords[keyword]; ok {
		return p
	}
	return place{at: v.at.AppendToken(keyword), value: true}
}

// list returns the schemas under a keyword; nil if it is missing.
func (v *view) list(keyword string) []place {
	p := v.keywords[keyword]
	values, _ := p.value.([]any)
	var list []place
	for i, value := range values {
		list = append(list, place{at: p.at.AppendToken(strconv.Itoa(i)), value: value})
	}
	return list
}

// properties returns the schemas of the fields by name.
func (v *view) properties() map[string]place {
	p := v.keywords["properties"]
	values, _ := p.value.(map[string]any)
	out := make(map[string]place, len(values))
	for name, value := range values {
		out[name] = place{at: p.at.AppendToken(name), value: value}
	}
	return out
}

// required returns the names of the required fields.
func (v *view) required() map[string]bool {
	names, _ := v.keywords["required"].value.([]any)
	out := make(map[string]bool, len(names))
	for _, name := range names {
		if text, ok := name.(string); ok {
			out[text] = true
		}
	}
	return out
}

// values returns the values of enum or const; nil if any value is accepted.
func (v *view) values() (values []any, isEnum bool) {
	if p, ok := v.keywords["const"]; ok {
		return []any{p.value}, false
	}
	if p, ok := v.keywords["enum"]; ok {
		values, _ = p.value.([]any)
		return values, true
	}
	return nil, false
}

// typeNames are the types of JSON Schema.
var typeNames = []string{"null", "boolean", "object", "array", "string", "number", "integer"}

// types returns the types that a schema accepts, if they are known.
func (v *view) types() map[string]bool {
	out := map[string]bool{}
	add := func(name string) {
		out[name] = true
		if name == "number" {
			out["integer"] = true
		}
	}
	values, _ := v.values()
	switch types := v.keywords["type"].value.(type) {
	case string:
		add(types)
		return out
	case []any:
		for _, t := range types {
			if name, ok := t.(string); ok {
				add(name)
			}
		}
		return out
	}
	for _, value := range values {
		add(typeOf(value))
	}
	if values != nil {
		return out
	}
	alternatives := v.list("anyOf")
	for _, p := range alternatives {
		if name, ok := member(p, "type").value.(string); ok {
			add(name)
		} else {
			alternatives = nil
		}
	}
	if alternatives == nil {
		for _, name := range typeNames {
			add(name)
		}
	}
	return out
}

// typeOf returns the type of a value.
func typeOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	default:
		return "number"
	}
}

// excludes reports whether a condition never holds for what v accepts, because its if requires values of a field that
// v does not allow.
func (d document) excludes(v *view, condition place) bool {
	object, _ := condition.value.(map[string]any)
	test, _ := object["if"].(map[string]any)
	if _, ok := object["else"]; ok || len(test) == 0 {
		return false
	}
	demanded := v.required()
	if names, ok := test["required"].([]any); ok {
		for _, name := range names {
			demanded[name.(string)] = true // checked by the compiler
		}
	}
	tested, _ := test["properties"].(map[string]any)
	fields := v.properties()
	for name, value := range tested {
		field, ok := fields[name]
		if !ok || !demanded[name] {
			continue
		}
		known, _ := d.view(field).values()
		wanted, _ := (document{}).view(place{value: value}).values()
		if known != nil && wanted != nil && !slices.ContainsFunc(wanted, func(w any) bool { return hasValue(known, w) }) {
			return true
		}
	}
	return false
}

// disjoint reports whether no document matches two of the schemas: they differ in type, or in the values of a field
// that all require.
func (d document) disjoint(schemas []place) bool {
	for i := range schemas {
		for j := range i {
			if !d.apart(d.view(schemas[i]), d.view(schemas[j])) {
				return false
			}
		}
	}
	return true
}

// apart reports whether no document matches both schemas.
func (d document) apart(a, b *view) bool {
	types := b.types()
	if !slices.ContainsFunc(slices.Collect(maps.Keys(a.types())), func(t string) bool { return types[t] }) {
		return true
	}
	if !maps.Equal(a.types(), map[string]bool{"object": true}) || !maps.Equal(types, map[string]bool{"object": true}) {
		return false
	}
	required, others := b.required(), b.properties()
	for name, field := range a.properties() {
		other, ok := others[name]
		if !ok || !required[name] || !a.required()[name] {
			continue
		}
		x, _ := d.view(field).values()
		y, _ := d.view(other).values()
		if x != nil && y != nil && !slices.ContainsFunc(x, func(v any) bool { return hasValue(y, v) }) {
			return true
		}
	}
	return false
}

// equal reports whether two schemas mean the same. It ignores annotations and follows references.
func (c *comparison) equal(older, newer any) bool {
	before, ok1 := older.(map[string]any)
	after, ok2 := newer.(map[string]any)
	if !ok1 || !ok2 {
		return sameJSON(older, newer)
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	for name := range names {
		if annotations[name] {
			continue
		}
		a, inOld := before[name]
		b, inNew := after[name]
		if !inOld || !inNew || !c.equalKeyword(name, a, b) {
			return false
		}
	}
	return true
}

// equalKeyword is [comparison.equal] for the value of a keyword.
func (c *comparison) equalKeyword(name string, older, newer any) bool {
	kind := holds[name]
	if name == "if" || name == "not" {
		kind = oneSchema
	}
	if name == "$ref" {
		return c.equalTarget(older, newer)
	}
	switch kind {
	case oneSchema:
		return c.equal(older, newer)
	case listOfSchemas:
		a, _ := older.([]any)
		b, _ := newer.([]any)
		return slices.EqualFunc(a, b, func(x, y any) bool { return c.equal(x, y) })
	case mapOfSchemas:
		a, _ := older.(map[string]any)
		b, _ := newer.(map[string]any)
		return maps.EqualFunc(a, b, func(x, y any) bool { return c.equal(x, y) })
	}
	return sameJSON(older, newer)
}

// equalTarget compares the targets of two references.
func (c *comparison) equalTarget(older, newer any) bool {
	a, ok1 := c.old.resolve(older)
	b, ok2 := c.new.resolve(newer)
	if !ok1 || !ok2 {
		return false // unresolved references may differ
	}
	pair := [2]jsontext.Pointer{a.at, b.at}
	if equal, ok := c.same[pair]; ok {
		return equal
	}
	c.same[pair] = true // for a reference back to here, assume that nothing differs
	equal := c.equal(a.value, b.value)
	if !equal {
		clear(c.same) // results that relied on the assumption
		c.same[pair] = false
	}
	return equal
}

// isObject reports whether a value is an object.
func isObject(value any) bool { _, ok := value.(map[string]any); return ok }

// hasValue reports whether a list has a value.
func hasValue(list []any, value any) bool {
	return slices.ContainsFunc(list, func(v any) bool { return sameJSON(v, value) })
}

// sameJSON reports whether two values are equal; numbers are compared by value.
func sameJSON(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		_, ok := b.(json.Number)
		return ok && compareNumbers(a, b) == 0
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameJSON)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, sameJSON)
	default:
		return reflect.DeepEqual(a, b)
	}
}

// compareNumbers compares two numbers of a document.
func compareNumbers(a, b any) int {
	x, ok1 := new(big.Rat).SetString(numberText(a))
	y, ok2 := new(big.Rat).SetString(numberText(b))
	if !ok1 || !ok2 {
		return strings.Compare(numberText(a), numberText(b))
	}
	return x.Cmp(y)
}

func numberText(v any) string { n, _ := v.(json.Number); return string(n) }
