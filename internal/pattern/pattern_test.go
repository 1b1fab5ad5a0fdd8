// SPDX-License-Identifier: Apache-2.0

package pattern

import (
	"strings"
	"testing"
)

func TestCompile(t *testing.T) {
	for src, want := range map[string]string{
		"^a+$":                          "",
		"(":                             "missing closing )",
		strings.Repeat("a", MaxBytes+1): "longer than 1000 bytes",
		"((([a-z]{1,9}){1,9}){1,9})b$":  "instructions; 1000 are allowed",
		strings.Repeat("[a-z]", 150):    "",
	} {
		p, err := Compile(src)
		if want == "" {
			if err != nil || p.Insts < 2 {
				t.Errorf("%.40s: %d instructions, %v", src, p.Insts, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want an error with %q", src, err, want)
		}
	}
	if p, err := Compile("^a+$"); err != nil || !p.MatchString("aa") || p.MatchString("ab") {
		t.Errorf("^a+$ matches the wrong texts (%v)", err)
	}
}
