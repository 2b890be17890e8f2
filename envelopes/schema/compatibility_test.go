package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// verdicts writes differences as "pointer change [backward] [forward]".
func verdicts(t *testing.T, older, newer string) []string {
	t.Helper()
	differences, err := Compare([]byte(older), []byte(newer))
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, older, newer)
	}
	out := []string{}
	for _, d := range differences {
		line := d.Pointer + " " + d.Change
		if d.Backward != "" {
			line += " [backward]"
		}
		if d.Forward != "" {
			line += " [forward]"
		}
		out = append(out, line)
	}
	return out
}

func TestCompareNamesEveryDifferenceAndWhomItBreaks(t *testing.T) {
	t.Parallel()
	const closed = `,"additionalProperties":false`
	for name, c := range map[string]struct {
		older, newer string
		want         []string
	}{
		"nothing":               {`{"type":"string"}`, `{"type":"string"}`, []string{}},
		"annotations":           {`{"title":"a","description":"b"}`, `{"title":"c","examples":[1],"$comment":"d"}`, []string{}},
		"a field named title":   {`{"properties":{"title":{"type":"string"}}}`, `{"properties":{"title":{"type":"null"}}}`, []string{"/properties/title/type type null is new [forward]", "/properties/title/type type string is gone [backward]"}},
		"new optional property": {`{"properties":{"a":true}` + closed + `}`, `{"properties":{"a":true,"b":{"type":"string"}}` + closed + `}`, []string{"/properties/b property is new"}},
		"new required property": {`{"properties":{"a":true}}`, `{"properties":{"a":true,"b":true},"required":["b"]}`, []string{"/properties/b property is new", `/required "b" is required now [backward]`}},
		"not required any more": {`{"required":["a"]}`, `{"required":[]}`, []string{`/required "a" is not required any more [forward]`}},
		"removed property":      {`{"properties":{"a":true,"b":true}}`, `{"properties":{"a":true}}`, []string{"/properties/b property is gone [backward] [forward]"}},
		"narrowed type":         {`{"type":["string","null"]}`, `{"type":"string"}`, []string{"/type type null is gone [backward]"}},
		"widened type":          {`{"type":"string"}`, `{"type":["string","null"]}`, []string{"/type type null is new [forward]"}},
		"integer to number":     {`{"type":"integer"}`, `{"type":"number"}`, []string{"/type type number is new [forward]"}},
		"number to integer":     {`{"type":"number"}`, `{"type":"integer"}`, []string{"/type type number is gone [backward]"}},
		"narrowed enum":         {`{"enum":["a","b"]}`, `{"enum":["a"]}`, []string{`/enum value "b" is gone [backward]`}},
		"widened enum":          {`{"enum":["a"]}`, `{"enum":["a","b"]}`, []string{`/enum value "b" is new`}},
		"new enum":              {`{"type":"string"}`, `{"type":"string","enum":["a"]}`, []string{`/enum values are limited to "a" [backward]`}},
		"changed constant":      {`{"const":1}`, `{"const":2}`, []string{"/const constant 1 is 2 now [backward] [forward]"}},
		"constant to enum":      {`{"const":"a"}`, `{"enum":["a","b"]}`, []string{`/enum value "b" is new [forward]`}},
		"same number":           {`{"const":1.0}`, `{"const":1}`, []string{}},
		"bounds":                {`{"minimum":1,"maximum":5}`, `{"minimum":0,"maximum":4}`, []string{"/maximum maximum 5 is 4 now [backward]", "/minimum minimum 1 is 0 now [forward]"}},
		"new bound":             {`{}`, `{"maxLength":5}`, []string{"/maxLength maxLength 5 is new [backward]"}},
		"new pattern":           {`{"type":"string"}`, `{"type":"string","pattern":"a"}`, []string{"/pattern pattern a is new [backward]"}},
		"changed pattern":       {`{"pattern":"b"}`, `{"pattern":"a"}`, []string{"/pattern pattern b is a now [backward] [forward]"}},
		"new format":            {`{"type":"string"}`, `{"type":"string","format":"uri"}`, []string{"/format format uri is new [backward]"}},
		"closed":                {`{"properties":{"a":true}}`, `{"properties":{"a":true}` + closed + `}`, []string{"/additionalProperties unknown fields are refused [backward]"}},
		"opened":                {`{"properties":{"a":true}` + closed + `}`, `{"properties":{"a":true}}`, []string{"/additionalProperties unknown fields pass"}},
		"map to field":          {`{"additionalProperties":{"type":"string"}}`, `{"properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, []string{"/properties/a property is new", "/properties/a/type type integer is new [forward]", "/properties/a/type type string is gone [backward]"}},
		"items":                 {`{"items":{"type":"string"}}`, `{"items":{"type":"integer"}}`, []string{"/items/type type integer is new [forward]", "/items/type type string is gone [backward]"}},
		"through a reference":   {`{"$ref":"#/$defs/a","$defs":{"a":{"enum":["x","y"]}}}`, `{"$ref":"#/$defs/b","$defs":{"b":{"enum":["x"]}}}`, []string{`/$defs/b/enum value "y" is gone [backward]`}},
		"reference written out": {`{"properties":{"i":{"$ref":"#/$defs/id"}},"$defs":{"id":{"type":"string","minLength":1}}}`, `{"properties":{"i":{"type":"string","minLength":1}}}`, []string{}},
		"null in two spellings": {`{"anyOf":[{"$ref":"#/$defs/id"},{"type":"null"}],"$defs":{"id":{"type":"string","enum":["a"]}}}`, `{"type":["string","null"],"enum":["a",null]}`, []string{}},
		"recursion":             {`{"properties":{"next":{"$ref":"#"},"a":{"type":"string"}}}`, `{"properties":{"next":{"$ref":"#"},"a":{"type":["string","null"]}}}`, []string{"/properties/a/type type null is new [forward]"}},
		"nothing any more":      {`{"items":true}`, `{"items":false}`, []string{"/items accepts nothing [backward]"}},
		"new alternative":       {`{"anyOf":[{"type":"string"}]}`, `{"anyOf":[{"type":"string"},{"type":"integer"}]}`, []string{"/anyOf/1 alternative is new [forward]"}},
		"removed alternative":   {`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, `{"anyOf":[{"type":"integer"}]}`, []string{"/anyOf/0 alternative is gone [backward]"}},
		"one of alternatives":   {`{"type":"string","maxLength":3}`, `{"anyOf":[{"type":"integer"},{"type":"string"}]}`, []string{" type integer is new [forward]", "/anyOf alternatives are new [forward]", "/maxLength maxLength 3 is gone [forward]"}},
		"alternatives that differ": {
			`{"oneOf":[{"type":"string"},{"type":"integer"}]}`, `{"oneOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}`,
			[]string{"/oneOf/2 alternative is new [forward]"},
		},
		"alternatives that overlap": {
			`{"oneOf":[{"minimum":1},{"type":"string"}]}`, `{"oneOf":[{"minimum":0},{"type":"string"}]}`,
			[]string{"/oneOf/0 an alternative of oneOf that can overlap others has changed [backward] [forward]"},
		},
		"alternatives by a constant": {
			`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"string"}},"required":["k"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]}`,
			`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":["string","null"]}},"required":["k"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]}`,
			[]string{"/oneOf/0/properties/x/type type null is new [forward]"},
		},
		"new schema that applies": {`{"allOf":[{"minimum":1}]}`, `{"allOf":[{"minimum":1},{"minimum":2}]}`, []string{"/allOf/1 schema applies now [backward]"}},
		"negation":                {`{"not":{"type":"string"}}`, `{"not":{"type":["string","null"]}}`, []string{"/not not has changed [backward] [forward]"}},
		"negation through a reference": {
			`{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"string"}}}`, `{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"null"}}}`,
			[]string{"/not not has changed [backward] [forward]"},
		},
		"new condition": {
			`{"properties":{"k":{"enum":["a"]}}}`, `{"properties":{"k":{"enum":["a"]}},"if":{"properties":{"k":{"const":"a"}}},"then":{"required":["x"]}}`,
			[]string{" condition is new [backward]"},
		},
		"condition of a new value": {
			`{"properties":{"k":{"enum":["a"]}},"required":["k"]}`, `{"properties":{"k":{"enum":["a","b"]}},"required":["k"],"allOf":[{"if":{"properties":{"k":{"const":"b"}}},"then":{"required":["x"]}}]}`,
			[]string{"/allOf/0 condition is new, of values that the old schema does not have", `/properties/k/enum value "b" is new`},
		},
		"changed condition": {`{"if":{"minimum":1},"then":{"maximum":5}}`, `{"if":{"minimum":1},"then":{"maximum":4}}`, []string{"/then/maximum maximum 5 is 4 now [backward]"}},
		"unknown keyword":   {`{"x-a":1}`, `{"x-a":2}`, []string{"/x-a x-a has changed [backward] [forward]"}},
		"anchor":            {`{"$ref":"#a","$defs":{"a":{"$anchor":"a"}}}`, `{"$ref":"#a","$defs":{"a":{"$anchor":"a","type":"string"}}}`, []string{"/$ref $ref is not followed [backward] [forward]"}},
	} {
		got := verdicts(t, c.older, c.newer)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCompareRefusesWhatIsNoSchema(t *testing.T) {
	t.Parallel()
	for _, document := range []string{``, `{`, `{"type":"nonsense"}`, `{"$ref":"https://example.com/x"}`, `[]`} {
		if _, err := Compare([]byte(`{}`), []byte(document)); err == nil || !strings.Contains(err.Error(), "new schema") {
			t.Errorf("%s: %v", document, err)
		}
	}
}

// anySchema draws a schema over a small world: values of every type, objects with the fields a and
// b, arrays.
func anySchema(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := []string{"type", "types", "enum", "const", "bounds", "lengths", "string", "true"}
		if depth > 0 {
			kinds = append(kinds, "object", "object", "array", "anyOf", "oneOf", "allOf", "not", "if", "ref", "null", "both")
		}
		sub := func(name string) string { return anySchema(depth-1).Draw(t, name) }
		types := rapid.SampledFrom([]string{`"string"`, `"integer"`, `"number"`, `"null"`, `"object"`, `"array"`, `"boolean"`})
		values := rapid.SampledFrom([]string{`"x"`, `"yy"`, `1`, `2`, `null`, `true`, `1.5`})
		n := rapid.IntRange(0, 3)
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "type":
			return fmt.Sprintf(`{"type":%s}`, types.Draw(t, "type"))
		case "types":
			return fmt.Sprintf(`{"type":["null",%s]}`, rapid.SampledFrom([]string{`"string"`, `"integer"`, `"number"`, `"object"`}).Draw(t, "type"))
		case "enum":
			return fmt.Sprintf(`{"enum":[%s]}`, strings.Join(rapid.SliceOfNDistinct(values, 1, 3, rapid.ID[string]).Draw(t, "values"), ","))
		case "const":
			return fmt.Sprintf(`{"const":%s}`, values.Draw(t, "value"))
		case "bounds":
			return fmt.Sprintf(`{"minimum":%d,"exclusiveMaximum":%d}`, n.Draw(t, "minimum"), n.Draw(t, "maximum"))
		case "lengths":
			return fmt.Sprintf(`{"minLength":%d,"maxItems":%d,"minProperties":%d}`, n.Draw(t, "length"), n.Draw(t, "items"), n.Draw(t, "properties"))
		case "string":
			return fmt.Sprintf(`{"type":"string","pattern":%q}`, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "pattern"))
		case "object":
			return fmt.Sprintf(`{"type":"object","properties":{"a":%s,"b":%s},"required":[%s],"additionalProperties":%s}`, sub("a"), sub("b"),
				rapid.SampledFrom([]string{``, `"a"`, `"b"`, `"a","b"`}).Draw(t, "required"), rapid.SampledFrom([]string{"true", "false"}).Draw(t, "open"))
		case "array":
			return fmt.Sprintf(`{"type":"array","items":%s}`, sub("items"))
		case "anyOf", "oneOf", "allOf":
			return fmt.Sprintf(`{%q:[%s,%s]}`, rapid.SampledFrom([]string{"anyOf", "oneOf", "allOf"}).Draw(t, "of"), sub("first"), sub("second"))
		case "not":
			return fmt.Sprintf(`{"not":%s}`, sub("not"))
		case "if":
			return fmt.Sprintf(`{"if":%s,"then":%s,"else":%s}`, sub("if"), sub("then"), sub("else"))
		case "ref":
			return fmt.Sprintf(`{"$ref":"#/$defs/%s"}`, rapid.SampledFrom([]string{"p", "q"}).Draw(t, "def"))
		case "null":
			return fmt.Sprintf(`{"anyOf":[{"type":"null"},%s]}`, sub("other"))
		case "both":
			return fmt.Sprintf(`{"$ref":"#/$defs/p","type":%s}`, types.Draw(t, "type"))
		default:
			return "true"
		}
	})
}

// anyValue draws a value of that world.
func anyValue(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := 6
		if depth > 0 {
			kinds = 9
		}
		sub := func(name string) string { return anyValue(depth-1).Draw(t, name) }
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 7:
			return "[" + strings.Join(rapid.SliceOfN(anyValue(depth-1), 0, 2).Draw(t, "items"), ",") + "]"
		case 8:
			return `{"a":` + sub("a") + `}`
		case 9:
			return `{"b":` + sub("b") + `,"a":` + sub("a") + `}`
		default:
			return rapid.SampledFrom([]string{`"x"`, `"yy"`, `"xy"`, `1`, `2`, `0`, `1.5`, `null`, `true`, `{}`, `[]`}).Draw(t, "scalar")
		}
	})
}

// changed draws a schema that differs from another one in a part of its text.
func changed(t *rapid.T, older string) string {
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		swap := rapid.SampledFrom([][2]string{
			{`"string"`, `"integer"`},
			{`"integer"`, `"number"`},
			{`"number"`, `"integer"`},
			{`1`, `2`},
			{`2`, `1`},
			{`0`, `1`},
			{`"required":[`, `"required":["c",`},
			{`["null",`, `["boolean",`},
			{`true`, `false`},
			{`false`, `true`},
			{`"x"`, `"yy"`},
			{`"anyOf"`, `"oneOf"`},
			{`"allOf"`, `"anyOf"`},
			{`p"`, `q"`},
			{`true`, `{"type":"string"}`},
		}).Draw(t, "swap")
		older = strings.Replace(older, swap[0], swap[1], rapid.IntRange(1, 2).Draw(t, "times"))
	}
	return older
}

// What Compare says to be compatible, accepts every document that it has to.
func TestCompatibleSchemaAcceptsWhatItHasTo(t *testing.T) {
	t.Parallel()
	compatible := 0
	rapid.Check(t, func(t *rapid.T) {
		with := func(schema string) string {
			return fmt.Sprintf(`{"allOf":[%s],"$defs":{"p":%s,"q":%s}}`, schema, anySchema(0).Draw(t, "p"), anySchema(0).Draw(t, "q"))
		}
		older := with(anySchema(3).Draw(t, "older"))
		newer := changed(t, older)
		differences, err := Compare([]byte(older), []byte(newer))
		if err != nil {
			t.Skip(err) // the change has made no schema of it
		}
		backward, forward := true, true
		for _, d := range differences {
			backward, forward = backward && d.Backward == "", forward && d.Forward == ""
		}
		opened, err := open([]byte(older))
		if err != nil {
			t.Fatal(err)
		}
		before, after, consumer := compiled(t, []byte(older)), compiled(t, []byte(newer)), compiled(t, opened)
		for _, value := range rapid.SliceOfN(anyValue(3), 20, 20).Draw(t, "values") {
			isOld, isNew := before.Check([]byte(value)) == nil, after.Check([]byte(value)) == nil
			if backward && isOld && !isNew {
				t.Fatalf("backward: %s\nold: %s\nnew: %s\n%v", value, older, newer, differences)
			}
			if forward && isNew && !isOld && consumer.Check([]byte(value)) != nil {
				t.Fatalf("forward: %s\nold: %s\nnew: %s\n%v", value, older, newer, differences)
			}
			if isOld && (backward || forward) {
				compatible++
			}
		}
	})
	if compatible == 0 {
		t.Error("no schema was compatible")
	}
}

func compiled(t interface{ Fatal(...any) }, document []byte) *Validator {
	v, err := NewValidator(document)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// replaced returns a text with a part replaced that it must have.
func replaced(t *testing.T, text, from, to string) string {
	t.Helper()
	out := strings.Replace(text, from, to, 1)
	if out == text {
		t.Fatalf("nothing to replace: %s", from)
	}
	return out
}
