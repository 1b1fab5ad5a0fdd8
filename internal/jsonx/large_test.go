// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"reflect"
	"strings"
	"testing"
)

var aHash = "sha256_" + strings.Repeat("0a", 32)

// A reference survives a round trip, and no similar object is a reference.
func TestLargeForm(t *testing.T) {
	for _, l := range []Large{{Hash: aHash, Size: 3, Bytes: 5}, {Hash: aHash, List: true, Size: 1 << 40, Bytes: 1 << 50}, {Hash: aHash, List: true, Size: 2, Bytes: 9, Refs: true}} {
		raw, err := Canonical(map[string]any{"a": []any{l}})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := CanonicalRaw(raw); err != nil || string(again) != string(raw) {
			t.Errorf("%s is not canonical: %v", raw, err)
		}
		v, err := Decode(raw, Limits{Large: true})
		if err != nil || !reflect.DeepEqual(v, map[string]any{"a": []any{l}}) {
			t.Errorf("%s reads as %v, %v", raw, v, err)
		}
		got, start, end, ok := NextLarge(raw)
		if !ok || got != l || string(raw[start:end]) != string(l.Append(nil)) || !Reserved(raw) {
			t.Errorf("in %s found %+v at %d:%d", raw, got, start, end)
		}
		if plain, err := Decode(raw, Limits{}); err != nil || reflect.DeepEqual(plain, v) {
			t.Errorf("not asked for, %s reads as %v, %v", raw, plain, err)
		}
	}
	good := string(Large{Hash: aHash, Size: 3, Bytes: 5}.Append(nil))
	for _, bad := range []string{
		strings.Replace(good, `"ref"`, `"reff"`, 1), strings.Replace(good, `"bytes":5`, `"bytes":5.5`, 1), strings.Replace(good, `"bytes":5`, `"bytes":-5`, 1),
		strings.Replace(good, `"size":3`, `"size":"3"`, 1), strings.Replace(good, "sha256_", "sha255_", 1), strings.Replace(good, "0a", "0A", 1),
		strings.Replace(good, "0a", "0", 1), strings.Replace(good, `"string"`, `"map"`, 1), strings.Replace(good, `"size":3,`, "", 1),
		strings.Replace(good, `"size":3,`, `"size":3,"so":1,`, 1), `{"$roux":{"a":1}}`, `{"$roux":"ref"}`,
		strings.Replace(good, `"size":3`, `"refs":true,"size":3`, 1), strings.Replace(strings.Replace(good, `"size":3`, `"refs":false,"size":3`, 1), `"string"`, `"list"`, 1),
	} {
		v, err := Decode([]byte(bad), Limits{Large: true})
		if _, isMap := v.(map[string]any); err != nil || !isMap {
			t.Errorf("%s reads as %v, %v", bad, v, err)
		}
		if _, _, _, ok := NextLarge([]byte(bad)); ok {
			t.Errorf("%s is taken for a reference", bad)
		}
		if !Reserved([]byte(bad)) {
			t.Errorf("%s does not use the reserved name", bad)
		}
	}
	// A string that looks like a reference is none, nor is an object with a similar name.
	for _, v := range []any{good, "$roux", []any{"$roux", "x"}, map[string]any{"x": "$roux", "y$roux": 1, "$roux ": 1, `"$roux`: 1}} {
		raw, err := Canonical(v)
		if err != nil || Reserved(raw) {
			t.Errorf("%s uses the reserved name, %v", raw, err)
		}
		if _, _, _, ok := NextLarge(raw); ok {
			t.Errorf("%s holds a reference", raw)
		}
	}
}
