// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

const goodTable = `{"a": {"input": {"type": "object"}, "output": {"type": "object"}, "queue": "gpu", "lease": "1m", "price": "0.5", "accounts": ["acme", "*"], "delivery": "at_most_once", "faults": ["FILE_INVALID"], "providers": ["farm"], "metadata": {"inputTypes": [{"name": "file", "mimeTypes": ["audio/*", "*/*"], "schema": {"type": "string"}, "description": "A recording."}], "branchConditions": [{"name": "is-long", "expression": "size(output.text) > 1000", "description": "Long."}], "parallelizable": false, "durationRange": {"min": "2s", "max": "10m"}}}, "resize-image": {"queue": "images"}}`

// A table that is wrong says where.
func TestParse(t *testing.T) {
	good := goodTable
	specs, err := Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	own := &action.Action{Name: "resize-image", Version: "1.2.3", Cost: 3}
	find := func(name string) *action.Action {
		if name == own.Name {
			return own
		}
		return nil
	}
	list, err := Remotes(specs, find)
	if err != nil || len(list) != 2 || list[0].Action.Price != "0.5" || list[0].Lease != time.Minute || list[1].Action.Version != "1.2.3" || list[1].Action.Cost != 3 || list[1].Queue != "images" {
		t.Fatalf("%+v, %v", list, err)
	}
	meta := list[0].Action.Metadata
	if len(meta.InputTypes) != 1 || meta.OutputTypes == nil || len(meta.BranchConditions) != 1 || meta.MayRunInParallel() || meta.DurationRange.Max != "10m" || !slices.Equal(list[0].Providers, []string{"farm"}) {
		t.Errorf("X10: metadata %+v, providers %q", meta, list[0].Providers)
	}
	m := New(list, specs)
	if !m.Permits("acme", "a") || !m.Permits("other", "resize-image") || !m.Permits("local", "resize-image") || !m.Permits("other", "no worker's") {
		t.Error("who may call what is wrong")
	}
	if specs, err = Parse(`{"b": {"input": {}, "output": {}}}`); err != nil || New(nil, specs).Permits("other", "b") || !New(nil, specs).Permits("local", "b") {
		t.Errorf("an action of the operator's is the account local's: %v", err)
	}
	if specs, err = Parse(`{"resize-image": {"version": "2.0.0"}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := Remotes(specs, find); fault.CodeOf(err) != fault.ConfigInvalid {
		t.Errorf("another version of Roux's own action: %v", err)
	}
	if specs, err = Parse(`{"alias": {}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := Remotes(specs, func(string) *action.Action { return own }); fault.CodeOf(err) != fault.ConfigInvalid {
		t.Errorf("an alias: %v", err)
	}
	for text, want := range map[string]string{
		`{"A": {}}`:                                                                            "want the name of an action",
		`{"a": {"queue": "Q"}}`:                                                                "queue",
		`{"a": {"lease": "1ms"}}`:                                                              "lease",
		`{"a": {"timeout": "x"}}`:                                                              "timeout",
		`{"a": {"input": {"type": 7}, "output": {}}}`:                                          "input",
		`{"a": {"input": {}, "output": {}, "slots": -1}}`:                                      "slots",
		`{"a": {"input": {}, "output": {}, "price": "x"}}`:                                     "price",
		`{"a": {"input": {}, "output": {}, "delivery": "twice"}}`:                              "delivery",
		`{"a": {"input": {}, "output": {}, "faults": ["X"]}}`:                                  "faults",
		`{"a": {"input": {}, "output": {}, "version": "1"}}`:                                   "version",
		`{"a": {"input": {}, "output": {}, "metadata": {"nothing": 1}}}`:                       "metadata",
		`{"a": {"metadata": {"inputTypes": [{}]}}}`:                                            "inputTypes[0]: name",
		`{"a": {"metadata": {"outputTypes": [{"name": "x", "schema": {"type": 7}}]}}}`:         "outputTypes[0]: schema",
		`{"a": {"metadata": {"outputTypes": [{"name": "x", "mimeTypes": ["image"]}]}}}`:        "image/*",
		`{"a": {"metadata": {"branchConditions": [{"name": "x", "expression": "output +"}]}}}`: "branchConditions[0]: expression",
		`{"a": {"metadata": {"branchConditions": [{"name": "x", "expression": "true"}, {"name": "x", "expression": "true"}]}}}`: "branchConditions[1]: name",
		`{"a": {"metadata": {"durationRange": {"min": "5s", "max": "1s"}}}}`:                                                    "durationRange",
		`{"a": {"providers": ["@people"]}}`: "providers",
		`{"a": {"accounts": ["a b"]}}`:      "accounts",
		`{"a": {"nothing": 1}}`:             "unknown field",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if specs, err = Parse(`{"no-such": {}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := Remotes(specs, find); fault.CodeOf(err) != fault.ConfigInvalid {
		t.Error(err)
	}
}

// X10: the schema of a table has every field that it may have, and accepts what Parse does.
func TestX10_SchemaOfTheTable(t *testing.T) {
	raw, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}
	s, err := jsonschema.Compile(raw)
	if err != nil {
		t.Fatal(err)
	}
	props := Schema()["properties"].(map[string]any)
	of := reflect.TypeFor[Spec]()
	for i := range of.NumField() {
		if name := of.Field(i).Tag.Get("json"); props[name] == nil {
			t.Errorf("the schema has no %s", name)
		}
	}
	var good map[string]any
	if err := json.Unmarshal([]byte(goodTable), &good); err != nil {
		t.Fatal(err)
	}
	for name, entry := range good {
		if list := s.Validate(entry); len(list) > 0 {
			t.Errorf("%s: %v", name, list)
		}
	}
	if len(props) != of.NumField() {
		t.Errorf("the schema has %d fields, want %d", len(props), of.NumField())
	}
	meta := props["metadata"].(map[string]any)["properties"].(map[string]any)
	of = reflect.TypeFor[action.Metadata]()
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); meta[name] == nil {
			t.Errorf("the schema of metadata has no %s", name)
		}
	}
	for text, ok := range map[string]bool{
		`{"input": {}, "output": {}, "metadata": {"inputTypes": [{"name": "x", "mimeTypes": ["*/*"]}], "durationRange": {"min": "1s", "max": "2s"}}}`: true,
		`{"metadata": {"inputs": []}}`: false, `{"slots": "two"}`: false, `{"nothing": 1}`: false,
	} {
		v, err := jsonx.Decode([]byte(text), jsonx.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if wrong := s.Validate(v); (len(wrong) == 0) != ok {
			t.Errorf("%s: %v", text, wrong)
		}
	}
}
