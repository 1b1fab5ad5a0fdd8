// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
)

// Starts are journal format (F46): the plain form has the bytes that encoding/json
// writes, and is read as encoding/json reads it.
func TestStartIsJSON(t *testing.T) {
	base := func(change func(*Start)) *Start {
		st := &Start{Run: "run_1", Account: "acme", Recipe: "r", PlanHash: "abc", Seed: 1<<64 - 1}
		change(st)
		return st
	}
	quick := 0
	for name, st := range map[string]*Start{
		"least": base(func(*Start) {}),
		"all": base(func(s *Start) {
			s.Version, s.Correlation, s.Pins = "1.0", "c", []Pin{{"a", "1.0.0", 5, "p", true, 2_500}, {Name: "b"}}
		}),
		"parameters": base(func(s *Start) { s.Parameters = map[string]any{"n": int64(1), "a": []any{"x", nil, 1.5, true}} }),
		"escapes":    base(func(s *Start) { s.Parameters = map[string]any{"a": "line\n\"quoted\""} }),
		"html":       base(func(s *Start) { s.Parameters = map[string]any{"a": "<b>&amp;"} }),
		"unicode":    base(func(s *Start) { s.Recipe, s.Parameters = "Müller\u2028", map[string]any{"ä": "\u2028"} }),
		"lines":      base(func(s *Start) { s.Parameters = map[string]any{"a": "\u2028 and \u2029"} }),
		"controls":   base(func(s *Start) { s.Correlation = "a\nb\x7f" }),
		"bad text":   base(func(s *Start) { s.Account = "\xff" }),
		"files":      base(func(s *Start) { s.Files = []File{{Hash: "sha256_a", Size: 1}} }),
		"labels":     base(func(s *Start) { s.Labels = map[string]string{"b": "1", "a": "2"} }),
		"empty":      base(func(s *Start) { s.Parameters, s.Pins, s.Files = map[string]any{}, []Pin{}, []File{} }),
		"price":      base(func(s *Start) { s.Pins = []Pin{{Name: "a", Price: 3 * ledger.Credit}, {Name: "b", Price: 1}} }),
		"owes":       base(func(s *Start) { s.Pins = []Pin{{Name: "a", Price: -1}} }),
		"negative":   base(func(s *Start) { s.Pins = []Pin{{Name: "a", Cost: -7}} }),
		"child": base(func(s *Start) {
			s.Child = &Child{Root: "run_a", Parent: "run_b", Path: []byte{1, 0, 255}, Step: 3, Gen: 1, Attempt: 2, Depth: 1, MaxDepth: 10,
				Share: Share{Credits: 1, Steps: 16, Memory: 1 << 20}, Most: Share{Memory: 5}}
			s.Credits, s.Parameters = &Credits{Estimated: 3, Policy: ledger.RefundAll}, map[string]any{"n": int64(1)}
		}),
		"workspace":         base(func(s *Start) { s.Child = &Child{Root: "run_a", Parent: "run_a", Workspace: "nested/a"} }),
		"a name in it":      base(func(s *Start) { s.Child = &Child{Root: "run_a", Parent: "run_a", Workspace: "ä"} }),
		"child of the root": base(func(s *Start) { s.Child = &Child{Root: "run_a", Parent: "run_a"} }),
		"a bad child":       base(func(s *Start) { s.Child = &Child{Root: "<", Depth: -1} }),
		"tree":              base(func(s *Start) { s.Tree = &Tree{Recipes: []TreeRecipe{{Ref: "a@1", Name: "a", Key: "k"}}} }),
		"credits":           base(func(s *Start) { s.Credits = &Credits{Estimated: 1, Reserved: 2, Most: 3, Policy: ledger.RefundAll} }),
		"key":               base(func(s *Start) { s.Credits = &Credits{Most: 3, Policy: ledger.RefundAll, Key: "ci"} }),
		"smallest":          base(func(s *Start) { s.Pins = []Pin{{Name: "a", Cost: -1 << 63}} }),
	} {
		data, err := EncodeStart(st)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rec := startRecord{Start: *st}
		if len(st.Parameters) > 0 {
			if rec.Parameters, err = jsonx.Canonical(st.Parameters); err != nil {
				t.Fatal(err)
			}
		}
		want, err := json.Marshal(&rec)
		if err != nil || string(data) != string(want) {
			t.Errorf("%s is written\n%s, want\n%s (%v)", name, data, want, err)
		}
		var plain startRecord
		if err := json.Unmarshal(want, &plain); err != nil {
			t.Fatal(err)
		}
		got, ok := readPlainStart(data)
		if !ok {
			continue
		}
		quick++
		if !reflect.DeepEqual(*got, plain) {
			t.Errorf("%s is read\n%+v, want\n%+v", name, *got, plain)
		}
	}
	if quick < 5 {
		t.Errorf("only %d starts go the quick way", quick)
	}
}

// Whatever readPlainStart accepts, encoding/json reads the same.
func FuzzStart(f *testing.F) {
	for _, s := range []string{
		`{"run":"r","account":"a","recipe":"x","version":"1","plan":"p","correlationId":"c","seed":1,"pins":[{"name":"n","version":"1","cost":5,"provider":"p","atMostOnce":true},{"name":"m","version":""}],"parameters":{"a":1}}`,
		`{"run":"r","account":"a","recipe":"x","plan":"p","seed":0}`, `{"run":"r","account":"a","recipe":"x","plan":"p","seed":01}`,
		`{"run":"r","account":"a","recipe":"x","plan":"p","seed":1,"parameters":{}} }`, `{"run":"r","account":"a","recipe":"x","plan":"p","seed":1,"parameters":1},"seed":2}`,
		`{"run":"r","account":"a","recipe":"x","plan":"p","seed":1,"credits":{"estimated":1,"reserved":2,"maxCredits":3,"policy":"refund_all","key":"ci"}}`,
		`{"run":"r","account":"a","recipe":"x","plan":"p","seed":1,"parameters":null}`, `{"run":"r","account":"a","recipe":"x","plan":"p","seed":1,"parameters": {} }`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, ok := readPlainStart(data)
		if !ok {
			return
		}
		if _, err := DecodeStart(data); err != nil {
			return // parameters are checked later
		}
		var plain startRecord
		if err := json.Unmarshal(data, &plain); err != nil {
			t.Fatalf("%s was read: %v", data, err)
		}
		rec.Parameters = bytes.TrimSpace(rec.Parameters)
		if !reflect.DeepEqual(*rec, plain) {
			t.Fatalf("%s is read\n%+v, want\n%+v", data, *rec, plain)
		}
	})
}

// A share has the bytes that encoding/json writes, and is read as it reads it.
func TestShareIsJSON(t *testing.T) {
	for _, s := range []Share{{}, {Steps: 16, Memory: 1 << 14}, {Credits: 1}, {1, 2, 3}} {
		want, err := json.Marshal(s)
		if err != nil || string(EncodeShare(s)) != string(want) {
			t.Errorf("%+v is written %s, want %s (%v)", s, EncodeShare(s), want, err)
		}
		ev := Event{Data: want}
		if got, err := ev.Share(); err != nil || got != s {
			t.Errorf("%s is read %+v, %v", want, got, err)
		}
	}
	ev := Event{Data: []byte(`{ "memory": 3, "steps": 2 }`)}
	if got, err := ev.Share(); err != nil || got != (Share{Steps: 2, Memory: 3}) {
		t.Errorf("%s is read %+v, %v", ev.Data, got, err)
	}
	if _, err := (&Event{Data: []byte("{")}).Share(); err == nil {
		t.Error("what is no JSON is read")
	}
}
