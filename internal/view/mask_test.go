// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// masked returns a run's first event, and one with data, as the mask shows them.
func masked(t *testing.T, schema, params, data string) (start, later string) {
	t.Helper()
	m := NewMask(&plan.Plan{InputSchema: json.RawMessage(schema)})
	if m == nil {
		t.Fatalf("%s marks nothing", schema)
	}
	var st journal.Start
	if err := json.Unmarshal([]byte(`{"parameters":`+params+`}`), &st); err != nil {
		t.Fatal(err)
	}
	first, err := journal.EncodeStart(&st)
	if err != nil {
		t.Fatal(err)
	}
	ev := m.Event(&journal.Event{Seq: 1, Kind: journal.EvRunStarted, Data: first})
	again, err := journal.DecodeStart(ev.Data)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(again.Parameters)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := jsonx.CanonicalRaw(m.Event(&journal.Event{Seq: 2, Kind: journal.EvNodeCompleted, Data: []byte(data)}).Data)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), string(shown)
}

// A marked value is masked as a whole, whatever its type, wherever the schema marks
// it.
func TestMaskedInput(t *testing.T) {
	const mark = `"writeOnly": true`
	for _, tt := range []struct{ name, schema, params, want string }{
		{"a text", `{"properties": {"a": {` + mark + `}}}`, `{"a": "hush", "b": "seen"}`, `{"a":"[masked]","b":"seen"}`},
		{"a short text", `{"properties": {"a": {` + mark + `}}}`, `{"a": "x", "b": "xyz"}`, `{"a":"[masked]","b":"xyz"}`},
		{"an empty text", `{"properties": {"a": {` + mark + `}}}`, `{"a": "", "b": ""}`, `{"a":"[masked]","b":""}`},
		{"an integer", `{"properties": {"a": {"type": "integer", ` + mark + `}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"a small number", `{"properties": {"a": {` + mark + `}}}`, `{"a": 7, "b": 7}`, `{"a":"[masked]","b":7}`},
		{"a fraction", `{"properties": {"a": {"type": "number", ` + mark + `}}}`, `{"a": 1.25}`, `{"a":"[masked]"}`},
		{"a truth value", `{"properties": {"a": {` + mark + `}}}`, `{"a": true, "b": true}`, `{"a":"[masked]","b":true}`},
		{"nothing", `{"properties": {"a": {` + mark + `}}}`, `{"a": null}`, `{"a":"[masked]"}`},
		{"an object", `{"properties": {"a": {"type": "object", ` + mark + `}}}`, `{"a": {"k": "v", "n": 1}}`, `{"a":"[masked]"}`},
		{"a list", `{"properties": {"a": {"type": "array", ` + mark + `}}}`, `{"a": ["hush", 4711]}`, `{"a":"[masked]"}`},
		{"a property of an object", `{"properties": {"o": {"properties": {"a": {` + mark + `}}}}}`, `{"o": {"a": 4711, "b": 1}}`, `{"o":{"a":"[masked]","b":1}}`},
		{"every item", `{"properties": {"l": {"items": {` + mark + `}}}}`, `{"l": ["hush", 4711, {"x": 1}]}`, `{"l":["[masked]","[masked]","[masked]"]}`},
		{"a field of every item", `{"properties": {"l": {"items": {"properties": {"a": {` + mark + `}}}}}}`, `{"l": [{"a": 4711}, {"a": "hush", "b": 2}]}`, `{"l":[{"a":"[masked]"},{"a":"[masked]","b":2}]}`},
		{"items of a list in a list", `{"properties": {"l": {"items": {"items": {` + mark + `}}}}}`, `{"l": [[4711], ["hush"]]}`, `{"l":[["[masked]"],["[masked]"]]}`},
		{"an item by its place", `{"properties": {"l": {"prefixItems": [{}, {` + mark + `}], "items": {}}}}`, `{"l": ["seen", "hush", "also"]}`, `{"l":["seen","[masked]","also"]}`},
		{"items by places, as older schemas say it", `{"properties": {"l": {"items": [{}, {` + mark + `}], "additionalItems": {` + mark + `}}}}`, `{"l": ["seen", "hush", "more"]}`, `{"l":["seen","[masked]","[masked]"]}`},
		{"what no place names", `{"properties": {"l": {"prefixItems": [{}], "unevaluatedItems": {` + mark + `}}}}`, `{"l": ["seen", "hush"]}`, `{"l":["seen","[masked]"]}`},
		{"what a list must contain", `{"properties": {"l": {"contains": {` + mark + `}}}}`, `{"l": ["hush"]}`, `{"l":["[masked]"]}`},
		{"other fields", `{"properties": {"b": {}}, "additionalProperties": {` + mark + `}}`, `{"a": 4711, "b": 1}`, `{"a":"[masked]","b":1}`},
		{"fields that nothing names", `{"properties": {"b": {}}, "unevaluatedProperties": {` + mark + `}}`, `{"a": 4711, "b": 1}`, `{"a":"[masked]","b":1}`},
		{"fields by a pattern", `{"patternProperties": {"^secret": {` + mark + `}}}`, `{"secretPin": 4711, "b": 1}`, `{"b":1,"secretPin":"[masked]"}`},
		{"fields by a pattern that cannot be read", `{"patternProperties": {"(": {` + mark + `}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"a reference", `{"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {` + mark + `}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"a reference into a list", `{"properties": {"a": {"$ref": "#/$defs/l/1"}, "b": {"$ref": "#/$defs/l/0"}}, "$defs": {"l": [{}, {` + mark + `}]}}`, `{"a": 4711, "b": 1}`, `{"a":"[masked]","b":1}`},
		{"a reference to the first of a list", `{"properties": {"a": {"$ref": "#/$defs/l/0"}}, "$defs": {"l": [{` + mark + `}]}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"a reference that escapes", `{"properties": {"a": {"$ref": "#/$defs/x~1y~0z"}}, "$defs": {"x/y~z": {` + mark + `}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"references that lead past a list", `{"properties": {"a": {"$ref": "#/$defs/l/2"}, "b": {"$ref": "#/$defs/l/-1"}, "c": {"$ref": "#/$defs/l/x"}, "d": {"$ref": "#/$defs/l/1"}, "e": {"$ref": "#/$defs/l/0/title/0"}}, "$defs": {"l": [{"title": "t"}, {` + mark + `}]}}`,
			`{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}`, `{"a":1,"b":2,"c":3,"d":"[masked]","e":5}`},
		{"a reference to a name", `{"properties": {"a": {"$ref": "#s"}}, "$defs": {"x": {"$anchor": "s", ` + mark + `}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"a dynamic reference", `{"properties": {"a": {"$dynamicRef": "#s"}}, "$defs": {"x": {"$dynamicAnchor": "s", ` + mark + `}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"a reference that leads nowhere", `{"properties": {"a": {"$ref": "other.json"}, "b": {` + mark + `}}}`, `{"a": 4711}`, `{"a":4711}`},
		{"one of several", `{"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer", ` + mark + `}]}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{"where another field is there", `{"dependentSchemas": {"b": {"properties": {"a": {` + mark + `}}}}}`, `{"a": 4711, "b": 1}`, `{"a":"[masked]","b":1}`},
		{"a schema that refers to itself", `{"properties": {"a": {` + mark + `}, "n": {"$ref": "#"}}}`, `{"n": {"n": {"a": 4711}}}`, `{"n":{"n":{"a":"[masked]"}}}`},
		{"the whole input", `{` + mark + `}`, `{"a": "hush", "b": 4711}`, `{}`},
	} {
		if got, _ := masked(t, tt.schema, tt.params, `1`); got != tt.want && (tt.want != "{}" || got != "null") {
			t.Errorf("%s: %s shows %s, want %s", tt.name, tt.params, got, tt.want)
		}
	}
}

// A marked value is masked where a step passes it on.
func TestMaskedOnTheWay(t *testing.T) {
	const schema = `{"properties": {"a": {"writeOnly": true}}}`
	for _, tt := range []struct{ name, secret, data, want string }{
		{"a text", `"hush"`, `{"x": "hush", "y": "he said hush!", "hush": 1}`, `{"[masked]":1,"x":"[masked]","y":"he said [masked]!"}`},
		{"a short text, where it is the value", `"abc"`, `["abc", "abcd"]`, `["[masked]","abcd"]`},
		{"a number", `4711`, `{"x": 4711, "y": "pin 4711", "z": 4712}`, `{"x":"[masked]","y":"pin [masked]","z":4712}`},
		{"a negative number", `-4711`, `[-4711, "at -4711"]`, `["[masked]","at [masked]"]`},
		{"a fraction", `12.75`, `[12.75, "12.75", 12]`, `["[masked]","[masked]",12]`},
		{"a small number is many things", `7`, `[7, 77, "7"]`, `[7,77,"7"]`},
		{"a truth value is many things", `true`, `[true]`, `[true]`},
		{"an object, wholly", `{"k": 1, "n": true}`, `[{"k": 1, "n": true}, {"k": 2, "n": true}]`, `["[masked]",{"k":2,"n":true}]`},
		{"a list, wholly", `[1, 2, 3]`, `{"x": [1, 2, 3], "y": [1, 2]}`, `{"x":"[masked]","y":[1,2]}`},
		{"a list in an object", `{"k": [1, 2, 3]}`, `[[1, 2, 3]]`, `["[masked]"]`},
		{"an empty list is nothing to hide", `[]`, `[[], {}]`, `[[],{}]`},
		{"a text that a message quotes", `"he\"sh\nus"`, `["want \"he\\\"sh\\nus\""]`, `["want \"[masked]\""]`},
		{"a text that a message cuts short", `"hush-hush-hush-hush"`, `["got \"hush-hus…", "hush-hu is no…"]`, `["got \"[masked]…","hush-hu is no…"]`},
		{"a message that begins with a text that it cuts short", `"hush-hush-hush-hush"`, `["hush-hus…", "hush-hus… and hush-hush…, …"]`, `["[masked]…","[masked]… and [masked]…, …"]`},
		{"a text in a URL", `"hush-ü/ +\"<"`, `["http://x/hush-%C3%BC/%20+%22%3C/y: refused", "/hush-%C3%BC%2F%20+%22%3C", "?k=hush-%C3%BC%2F+%2B%22%3C", "hush-%20"]`,
			`["http://x/[masked]/y: refused","/[masked]","?k=[masked]","hush-%20"]`},
		{"a short text in a URL is many things", `"é"`, `["/caf%C3%A9"]`, `["/caf%C3%A9"]`},
		{"a text that is no path", `"hush//:%"`, `["/hush//:%25", "hush//:%"]`, `["/[masked]","[masked]"]`},
		{"texts within", `{"k": ["hush", {"deep": "whisper"}]}`, `["hush", "whisper"]`, `["[masked]","[masked]"]`},
	} {
		if _, got := masked(t, schema, `{"a": `+tt.secret+`}`, tt.data); got != tt.want {
			t.Errorf("%s: %s shows %s, want %s", tt.name, tt.data, got, tt.want)
		}
	}
}

// A start that cannot be read may hold any value, in its parameters and in what steps
// make of them: nothing of it is shown, although a part of it could be decoded.
func TestMaskOfAnUnreadableStart(t *testing.T) {
	p := &plan.Plan{InputSchema: []byte(`{"properties": {"a": {"writeOnly": true}}}`)}
	for name, params := range map[string]string{
		"a name twice":      `{"a":"hush-hush","a":"hush-hush"}`,
		"no object":         `["hush-hush"]`,
		"nested too deeply": `{"a":` + strings.Repeat("[", 2000) + `"hush-hush"` + strings.Repeat("]", 2000) + `}`,
	} {
		m := NewMask(p)
		for i, ev := range []*journal.Event{
			{Kind: journal.EvRunStarted, Step: -1, Data: []byte(`{"run":"r","account":"a","recipe":"x","plan":"h","seed":1,"parameters":` + params + `}`)},
			{Kind: journal.EvNodeCompleted, Data: []byte(`{"said":"hush-hush"}`)},
			{Kind: journal.EvNodeFailed, Code: fault.StepFailed, Text: "hush-hush is no PIN"},
		} {
			ev.Seq = uint64(i + 1)
			before := *ev
			shown, err := json.Marshal(journal.Render(p, "r", m.Event(ev)))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(shown, []byte("hush")) {
				t.Errorf("%s: event %d shows %.200s", name, ev.Seq, shown)
			}
			if !reflect.DeepEqual(*ev, before) {
				t.Errorf("%s: event %d was changed", name, ev.Seq)
			}
		}
	}
}

// So it is with edits of the input by a retry.
func TestMaskOfUnreadableEdits(t *testing.T) {
	p := &plan.Plan{InputSchema: []byte(`{"properties": {"a": {"writeOnly": true}}}`)}
	for _, edits := range []string{`["hush-hush"]`, `{"a":"hush-hush","a":"hush-hush"}`} {
		m := NewMask(p)
		m.Event(&journal.Event{Seq: 1, Kind: journal.EvRunStarted, Step: -1, Data: []byte(`{"run":"r","account":"a","recipe":"x","plan":"h","seed":1}`)})
		for _, ev := range []*journal.Event{
			{Seq: 2, Kind: journal.EvRunRetried, Step: -1, Data: []byte(edits)},
			{Seq: 3, Kind: journal.EvNodeCompleted, Data: []byte(`"hush-hush"`)},
		} {
			if shown := m.Event(ev); bytes.Contains(shown.Data, []byte("hush")) {
				t.Errorf("edits %s: event %d shows %s", edits, ev.Seq, shown.Data)
			}
		}
		for _, ev := range []*journal.Event{
			{Seq: 4, Kind: journal.EvRunLimits, Step: -1, Data: []byte(`{"totalSteps":7}`)},
			{Seq: 5, Kind: journal.EvRunResumed, Step: -1, Data: []byte(`{"steps":7}`)},
		} {
			if shown := m.Event(ev); string(shown.Data) != string(ev.Data) {
				t.Errorf("edits %s: %s is shown as %s, and the run cannot be read", edits, ev.Name(), shown.Data)
			}
		}
	}
}

// Edits as deep as a retry may make them are read: their marked values are masked, in
// later events too, and the rest is shown.
func TestMaskOfDeepEdits(t *testing.T) {
	m := NewMask(&plan.Plan{InputSchema: []byte(`{"properties": {"a": {"writeOnly": true}}}`)})
	n := journal.InlineLimits.Depth - 1
	deep := `{"a":"hush-hush","tree":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	m.Event(&journal.Event{Seq: 1, Kind: journal.EvRunStarted, Step: -1, Data: []byte(`{"run":"r","account":"a","recipe":"x","plan":"h","seed":1}`)})
	edits := m.Event(&journal.Event{Seq: 2, Kind: journal.EvRunRetried, Step: -1, Data: []byte(deep)})
	later := m.Event(&journal.Event{Seq: 3, Kind: journal.EvNodeCompleted, Data: []byte(`{"n":3,"s":"hush-hush"}`)})
	if m.unread || bytes.Contains(edits.Data, []byte("hush")) || string(later.Data) != `{"n":3,"s":"[masked]"}` {
		t.Errorf("unread %v, edits %.100s, later %s", m.unread, edits.Data, later.Data)
	}
}

// The escaped form that is masked is the one that net/url writes.
func TestEscaped(t *testing.T) {
	all := "ü\xff"
	for c := range byte(0x80) {
		all += string(rune(c))
	}
	for got, want := range map[string]string{
		escaped("/"+all, "$&+,/:;=@"):                   (&url.URL{Path: "/" + all}).EscapedPath(),
		escaped(all, "$&+:=@"):                          url.PathEscape(all),
		strings.ReplaceAll(escaped(all, " "), " ", "+"): url.QueryEscape(all),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A mask does not change the events it is given, and a schema without a mark has no
// mask.
func TestMaskChangesNothing(t *testing.T) {
	if NewMask(&plan.Plan{InputSchema: json.RawMessage(`{"properties": {"a": {"type": "string"}}}`)}) != nil {
		t.Error("a schema without a mark has a mask")
	}
	m := NewMask(&plan.Plan{InputSchema: json.RawMessage(`{"properties": {"a": {"writeOnly": true}}}`)})
	data, err := journal.EncodeStart(&journal.Start{Parameters: map[string]any{"a": "hush"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range []journal.Event{{Seq: 1, Kind: journal.EvRunStarted, Data: data}, {Seq: 2, Kind: journal.EvNodeFailed, Text: "not hush", Data: []byte(`"hush"`)}} {
		text, body := ev.Text, string(ev.Data)
		shown := m.Event(&ev)
		if strings.Contains(shown.Text+string(shown.Data), "hush") {
			t.Errorf("event %d shows %q %s", ev.Seq, shown.Text, shown.Data)
		}
		if ev.Text != text || string(ev.Data) != body {
			t.Errorf("event %d was changed to %q %s", ev.Seq, ev.Text, ev.Data)
		}
	}
}

// An event that readers of the state need keeps its form: a list of items stays a
// list, outputs an object, limits numbers.
func TestMaskKeepsForms(t *testing.T) {
	m := NewMask(&plan.Plan{InputSchema: json.RawMessage(`{"properties": {"a": {"writeOnly": true}, "o": {"writeOnly": true}, "n": {"writeOnly": true}}}`)})
	first, err := journal.EncodeStart(&journal.Start{Parameters: map[string]any{"a": []any{int64(1001), int64(2), "x"}, "o": map[string]any{"k": true}, "n": int64(200_000)}})
	if err != nil {
		t.Fatal(err)
	}
	m.Event(&journal.Event{Seq: 1, Kind: journal.EvRunStarted, Data: first})
	for _, tt := range []struct {
		kind       journal.EventKind
		data, want string
	}{
		{journal.EvNodeOpened, `[1001,2,"x"]`, `["[masked]",2,"[masked]"]`},
		{journal.EvNodeItems, `[1001,2,"x"]`, `["[masked]",2,"[masked]"]`},
		{journal.EvRunCompleted, `{"k":true}`, `{"k":true}`},
		{journal.EvRunCompleted, `{"r":{"k":true}}`, `{"r":"[masked]"}`},
		{journal.EvRunLimits, `{"max_total_steps":200000}`, `{"max_total_steps":200000}`},
		{journal.EvRunResumed, `{"steps":1001,"memory":200000}`, `{"steps":1001,"memory":200000}`},
		{journal.EvNodeRound, `{"n":200000}`, `{"n":"[masked]"}`},
		{journal.EvNodeCompleted, `[1001,2,"x"]`, `"[masked]"`},
	} {
		if got := string(m.Event(&journal.Event{Seq: 2, Kind: tt.kind, Data: []byte(tt.data)}).Data); got != tt.want {
			t.Errorf("%s: %s shows %s, want %s", tt.kind.Name(), tt.data, got, tt.want)
		}
	}
}

// A schema that refers to itself many times is followed a bounded number of times.
// Deep values are reached; a value that is not reached is not shown.
func TestMaskIsBounded(t *testing.T) {
	deep := `"hush"`
	for range 60 {
		deep = `{"n": ` + deep + `}`
	}
	if got, _ := masked(t, `{"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"if": {"type": "object"}, "then": {"properties": {"n": {"$ref": "#/$defs/n"}}}, "else": {"writeOnly": true}}}}`,
		`{"n": `+deep+`}`, `1`); strings.Contains(got, "hush") {
		t.Errorf("a value at depth 60 is shown: %s", got)
	}
	twice := `{"allOf": [{"$ref": "#"}, {"$ref": "#"}], "properties": {"a": {"writeOnly": true}}}`
	if got, later := masked(t, twice, `{"a": "hush", "b": "other"}`, `"hush"`); strings.Contains(got+later, "hush") {
		t.Errorf("what was not reached is shown: %s, %s", got, later)
	}
}

// A mark is found behind as many schema parts as are followed for one value, and again
// as many for each field and item.
func TestMaskDepth(t *testing.T) {
	sub, plain := `{"writeOnly": true}`, `{}`
	for range maxSchemaDepth {
		sub, plain = `{"allOf": [`+sub+`]}`, `{"allOf": [`+plain+`]}`
	}
	for _, tt := range []struct{ schema, params, want string }{
		{`{"properties": {"a": ` + sub + `}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{`{"patternProperties": {"a": ` + sub + `}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{`{"additionalProperties": ` + sub + `}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{`{"unevaluatedProperties": ` + sub + `}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		{`{"properties": {"a": {"prefixItems": [` + sub + `]}}}`, `{"a": [4711]}`, `{"a":["[masked]"]}`},
		{`{"properties": {"a": {"items": ` + sub + `}}}`, `{"a": [4711]}`, `{"a":["[masked]"]}`},
		{`{"properties": {"a": {"unevaluatedItems": ` + sub + `}}}`, `{"a": [4711]}`, `{"a":["[masked]"]}`},
		{`{"properties": {"a": {"contains": ` + sub + `}}}`, `{"a": [4711]}`, `{"a":["[masked]"]}`},
		// Deeper parts are not followed, so the value may be marked.
		{`{"properties": {"a": {"allOf": [{"allOf": [` + sub + `]}]}}}`, `{"a": 4711}`, `{"a":"[masked]"}`},
		// As deep, and without a mark.
		{`{"$defs": {"x": {"writeOnly": true}}, "properties": {"a": ` + plain + `}}`, `{"a": 4711}`, `{"a":4711}`},
		{`{"$defs": {"x": {"writeOnly": true}}, "patternProperties": {"a": ` + plain + `}}`, `{"a": 4711}`, `{"a":4711}`},
		{`{"$defs": {"x": {"writeOnly": true}}, "additionalProperties": ` + plain + `}`, `{"a": 4711}`, `{"a":4711}`},
		{`{"$defs": {"x": {"writeOnly": true}}, "unevaluatedProperties": ` + plain + `}`, `{"a": 4711}`, `{"a":4711}`},
		{`{"$defs": {"x": {"writeOnly": true}}, "properties": {"a": {"prefixItems": [` + plain + `]}}}`, `{"a": [4711]}`, `{"a":[4711]}`},
		{`{"$defs": {"x": {"writeOnly": true}}, "properties": {"a": {"items": ` + plain + `}}}`, `{"a": [4711]}`, `{"a":[4711]}`},
		{`{"$defs": {"x": {"writeOnly": true}}, "properties": {"a": {"unevaluatedItems": ` + plain + `}}}`, `{"a": [4711]}`, `{"a":[4711]}`},
		{`{"$defs": {"x": {"writeOnly": true}}, "properties": {"a": {"contains": ` + plain + `}}}`, `{"a": [4711]}`, `{"a":[4711]}`},
	} {
		if got, _ := masked(t, tt.schema, tt.params, `1`); got != tt.want {
			t.Errorf("%.40s …: %s shows %s, want %s", tt.schema, tt.params, got, tt.want)
		}
	}
}

// A mask of a child run hides what the recipe of its parent marks, as the parent passes it
// on, and what its own recipe marks.
func TestMaskOfAChildRun(t *testing.T) {
	marks := func(name string) *plan.Plan {
		return &plan.Plan{InputSchema: []byte(`{"properties": {"` + name + `": {"writeOnly": true}}}`)}
	}
	start := func(params string) *journal.Event {
		return &journal.Event{Seq: 1, Kind: journal.EvRunStarted, Step: -1,
			Data: []byte(`{"run":"r","account":"a","recipe":"x","plan":"h","seed":1,"parameters":` + params + `}`)}
	}
	up := NewMask(marks("key"))
	up.Event(start(`{"key": "hush-hush", "seen": "open"}`))
	for name, child := range map[string]*plan.Plan{"marks nothing": {}, "marks another": marks("pin")} {
		m := NewMask(child).Inherit(up)
		for _, ev := range []*journal.Event{
			start(`{"k": "hush-hush", "seen": "open"}`),
			{Seq: 2, Kind: journal.EvChildStarted, Text: "run_1", Data: []byte(`{"steps":16}`), Attempt: 1},
			{Seq: 3, Kind: journal.EvChildEnded, Attempt: 1, Code: fault.StepFailed, Text: "hush-hush is no key", Data: []byte(`{"said":"hush-hush"}`)},
			{Seq: 4, Kind: journal.EvNodeFailed, Code: fault.StepFailed, Text: "hush-hush is no key"},
			{Seq: 5, Kind: journal.EvRunFailed, Step: -1, Code: fault.StepFailed, Text: "hush-hush is no key"},
		} {
			shown := m.Event(ev)
			if text := shown.Text + string(shown.Data); strings.Contains(text, "hush") {
				t.Errorf("%s: event %d shows %s", name, ev.Seq, text)
			}
			if ev.Kind == journal.EvChildStarted && (shown.Text != ev.Text || string(shown.Data) != string(ev.Data)) {
				t.Errorf("%s: the start of a child run is shown as %+v", name, shown)
			}
		}
		if name == "marks another" {
			shown := m.Event(start(`{"pin": "whisper", "seen": "open"}`))
			if bytes.Contains(shown.Data, []byte("whisper")) || !bytes.Contains(shown.Data, []byte("open")) {
				t.Errorf("%s: %s", name, shown.Data)
			}
		}
	}
	if NewMask(&plan.Plan{}).Inherit(nil) != nil {
		t.Error("a mask that hides nothing is no mask")
	}
}

// A mask of a parent hides what the recipe of a child run marks, from the end of the child
// run on.
func TestMaskOfAParent(t *testing.T) {
	child := func(run string) (*Mask, error) {
		if run != "run_1" {
			return nil, fault.New(fault.StoreCorrupt, "run %s cannot be read", run)
		}
		m := NewMask(&plan.Plan{InputSchema: []byte(`{"properties": {"key": {"writeOnly": true}}}`)})
		m.Learn(&journal.Event{Seq: 1, Kind: journal.EvRunStarted, Step: -1,
			Data: []byte(`{"run":"run_1","account":"a","recipe":"x","plan":"h","seed":1,"parameters":{"key": "hush-hush"}}`)})
		return m, nil
	}
	m := NewMask(&plan.Plan{}).Below(child)
	show := func(ev *journal.Event) string { shown := m.Event(ev); return shown.Text + string(shown.Data) }
	ended := journal.Event{Seq: 4, Kind: journal.EvChildEnded, Step: 2, Attempt: 1, Code: fault.StepFailed, Text: "hush-hush is no key"}
	if text := show(&ended); !strings.Contains(text, "hush") {
		t.Errorf("the end of a child run that did not start here is shown as %q", text)
	}
	show(&journal.Event{Seq: 2, Kind: journal.EvChildStarted, Step: 2, Text: "run_1", Attempt: 1})
	for _, ev := range []*journal.Event{&ended, {Seq: 5, Kind: journal.EvNodeCompleted, Step: 2, Data: []byte(`{"said":"hush-hush"}`)}} {
		if text := show(ev); strings.Contains(text, "hush") {
			t.Errorf("event %d shows %s", ev.Seq, text)
		}
	}
	show(&journal.Event{Seq: 6, Kind: journal.EvChildStarted, Step: 3, Text: "run_2", Attempt: 1})
	ended.Step, ended.Text = 3, "anything"
	if text := show(&ended); strings.Contains(text, "anything") {
		t.Errorf("the end of a child run that cannot be read is shown as %q", text)
	}
}
