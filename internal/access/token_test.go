// SPDX-License-Identifier: Apache-2.0

package access

import (
	"regexp"
	"strings"
	"testing"
)

const someID = "key_01K0ABCDEFGHJKMNPQRSTVWXYZ"

// A token has a prefix, the id of its key and 256 random bits, and is found in logs by a
// pattern.
func TestA21_Tokens(t *testing.T) {
	shape := regexp.MustCompile(`^roux_[0-9A-Z]{26}_[A-Za-z0-9_-]{43}$`)
	seen := map[string]bool{}
	for range 100 {
		token, hash := newToken(someID)
		if !shape.MatchString(token) || len(hash) != 64 || seen[token] {
			t.Fatalf("token %s, hash %s", token, hash)
		}
		seen[token] = true
		if id, ok := keyOf(token); !ok || id != someID {
			t.Fatalf("%s is a token of %q", token, id)
		}
		if !matches(token, hash) || matches(token[:len(token)-1], hash) || matches(token, "") || matches(hash, hash) {
			t.Fatal("the hash admits something else than its token")
		}
	}
	token, _ := newToken(someID)
	for _, bad := range []string{
		"", "roux_", token[1:], token + "A", token[:len(token)-1], token + "\n", token[:40] + "\n" + token[41:], token[:len(token)-1] + "=",
		"Roux_" + token[5:], "roux_" + strings.ToLower(token[5:31]) + token[31:], token[:31] + "-" + token[32:], token[:32] + strings.Repeat("é", 22)[:43],
		strings.Repeat("A", 1<<20),
	} {
		if id, ok := keyOf(bad); ok {
			t.Errorf("%.80q is a token of %s", bad, id)
		}
	}
}

// Whatever is sent as a token names the id of a key or nothing.
func FuzzKeyOf(f *testing.F) {
	token, _ := newToken(someID)
	for _, seed := range []string{token, "", "roux_", token[:31], token + "x", "roux_" + strings.Repeat("_", 70)} {
		f.Add(seed)
	}
	id := regexp.MustCompile(`^key_[0-9A-Z]{26}$`)
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := keyOf(text)
		switch {
		case !ok && got != "":
			t.Errorf("%q is no token, but has the id %q", text, got)
		case ok && (!id.MatchString(got) || len(text) != len(token) || got == adminKey):
			t.Errorf("%q has the id %q", text, got)
		}
	})
}
