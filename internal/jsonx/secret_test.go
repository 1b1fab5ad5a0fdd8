// SPDX-License-Identifier: Apache-2.0

package jsonx

import (
	"errors"
	"strings"
	"testing"
)

func TestSecret(t *testing.T) {
	v := map[string]any{
		"a": Secret{[]SecretPart{{Text: `say "`}, {Name: "one"}, {Text: `]}" to `}, {Name: "two-2"}}},
		"b": []any{Secret{[]SecretPart{{Name: "one"}}}}, "c": `{"$roux":"secret","parts":[["one"]]}`, "d": int64(1),
	}
	raw, err := Canonical(v)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"a":{"$roux":"secret","parts":["say \"",["one"],"]}\" to ",["two-2"]]},"b":[{"$roux":"secret","parts":[["one"]]}],"c":"{\"$roux\":\"secret\",\"parts\":[[\"one\"]]}","d":1}`; string(raw) != want {
		t.Fatalf("got %s", raw)
	}
	if !HasSecret(raw) || !Reserved(raw) || HasSecret([]byte(`{"c":"{\"$roux\":\"secret\",\"parts\":[]}"}`)) {
		t.Error("HasSecret or Reserved is wrong")
	}
	values := map[string]string{"one": `1"\`, "two-2": "{\"$roux\":\"secret\",\"parts\":[[\"one\"]]}"}
	got, err := FillSecrets(raw, 1000, func(name string) (string, error) { return values[name], nil })
	if want := `{"a":"say \"1\"\\]}\" to {\"$roux\":\"secret\",\"parts\":[[\"one\"]]}","b":["1\"\\"],"c":"{\"$roux\":\"secret\",\"parts\":[[\"one\"]]}","d":1}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := FillSecrets(raw, len(raw)-80, func(string) (string, error) { return strings.Repeat("x", 100), nil }); err == nil {
		t.Error("the limit was not applied")
	}
	errGone := errors.New("gone")
	if _, err := FillSecrets(raw, 1000, func(string) (string, error) { return "", errGone }); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
}

func FuzzFillSecrets(f *testing.F) {
	f.Add(`{"a":{"$roux":"secret","parts":["x",["n"]]}}`)
	f.Add(`{"$roux":"secret","parts":[`)
	f.Add(`{"$roux":"secret","parts":[["n",1],{}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := FillSecrets([]byte(raw), 1<<16, func(name string) (string, error) {
			if !SecretName(name) {
				t.Errorf("asked for %q", name)
			}
			return "value", nil
		})
		if err == nil && HasSecret(got) {
			t.Errorf("%s became %s", raw, got)
		}
	})
}
