// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/blob"
)

// Hashes are found anywhere in bytes, each once, and nothing else is.
func TestHashesAreFound(t *testing.T) {
	a, b := hashPrefix+strings.Repeat("0a", 32), hashPrefix+strings.Repeat("9f", 32)
	for text, want := range map[string][]string{
		"":                             nil,
		"sha256":                       nil,
		a:                              {a},
		a[1:]:                          nil,
		a[:len(a)-1]:                   nil,
		a + b:                          {a, b},
		"_" + a + "_" + b + "_":        {a, b},
		a + "0":                        {a},
		"sha256_" + a:                  {a},
		hashPrefix + b[7:70] + "g" + a: {a},
		hashPrefix + b[7:70] + ":" + a: {a},
		hashPrefix + b[7:70] + "/":     nil,
		hashPrefix + b[7:70] + "`":     nil,
		strings.ToUpper(a):             nil,
		`{"x":"` + a + `"}` + a:        {a, a},
	} {
		var got []string
		EachHash([]byte(text), func(h []byte) { got = append(got, string(h)) })
		if !slices.Equal(got, want) {
			t.Errorf("in %q: %q, want %q", text, got, want)
		}
	}
	into := map[string]struct{}{}
	collectHashes(map[string]any{a: []any{"x", "y " + b, []byte(a), 7, nil}}, into)
	if len(into) != 2 {
		t.Errorf("found %v", into)
	}
	for i := range maxTouched {
		into[fmt.Sprint(i)] = struct{}{}
	}
	collectHashes(hashPrefix+strings.Repeat("c", 64), into)
	if len(into) != maxTouched+2 {
		t.Errorf("%d hashes of one request are collected", len(into))
	}
}

// Everything that looks like the hash of a file is found; what only begins like one is
// not.
func TestHashesInBytes(t *testing.T) {
	h := "sha256_" + strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct {
		text string
		want int
	}{
		{"", 0}, {h, 1}, {"x" + h + "y", 1}, {h + h, 2}, {`{"a":"` + h + `","b":"` + h + `"}`, 2},
		{h[:70], 0}, {"sha256_" + h, 1}, {"sha256_sha256_" + h, 1}, {strings.ToUpper(h), 0},
		{"sha256_" + strings.Repeat("g", 64), 0}, {h[:20] + h, 1}, {"sha256_", 0},
	} {
		n := 0
		EachHash([]byte(tt.text), func(hash []byte) {
			if n++; !blob.ValidHash(string(hash)) {
				t.Errorf("%q is not a valid hash", hash)
			}
		})
		if n != tt.want {
			t.Errorf("%q holds %d hashes, want %d", tt.text, n, tt.want)
		}
	}
}
