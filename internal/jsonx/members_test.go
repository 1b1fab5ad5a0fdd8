// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestMembers compares what Members and Elements visit with what encoding/json decodes.
func TestMembers(t *testing.T) {
	texts := append([]string{
		`{"b":[1,{"a":"}]"}],"a":{"x":"\"}","y":[]}}`, `{"a":1.5}`, `{"a":"\u0041"}`, `{"a":[}`, `{"a":1]`, `[1}`, `["a","b\\",{"c":[[]]}]`,
		`{"a":{}`, `{"a":{}}}`, `[[]`, `[[]]]`, `{"a":1,,"b":2}`, `[1,,2]`, `[,]`, `{,}`, `{"a":}`, `[`, `{`, `["`, `[1]x`, `{"a":1}` + "\n",
	}, plainTexts...)
	visited := 0
	for _, text := range texts {
		members := map[string]json.RawMessage{}
		if Members([]byte(text), func(name, value []byte) bool { members[string(name)] = value; return true }) {
			visited++
			var want map[string]json.RawMessage
			if err := json.Unmarshal([]byte(text), &want); err == nil && !reflect.DeepEqual(members, want) {
				t.Errorf("%s: Members visits %s, want %s", text, members, want)
			}
		}
		elements := []json.RawMessage{}
		if Elements([]byte(text), func(value []byte) bool { elements = append(elements, value); return true }) {
			visited++
			var want []json.RawMessage
			if err := json.Unmarshal([]byte(text), &want); err == nil && !reflect.DeepEqual(elements, want) {
				t.Errorf("%s: Elements visits %s, want %s", text, elements, want)
			}
		}
	}
	if visited < 15 {
		t.Errorf("%d texts were visited: the test shows nothing", visited)
	}
	for _, text := range []string{`{"a":1,,"b":2}`, `{"a":1.5}`, `{"a":1]`, `{"a":{}`, `{"a":{}}}`, `{"a" :1}`, ` {}`, `[1]`, ``} {
		if Members([]byte(text), func(_, _ []byte) bool { return true }) {
			t.Errorf("Members accepts %s", text)
		}
	}
	if Elements([]byte(`[1,2]`), func(value []byte) bool { return string(value) == "1" }) {
		t.Error("a visit that returns false does not end Elements")
	}
}
