// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"
)

func TestA31_Clean(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain text, ünïcode, 日本", "plain text, ünïcode, 日本"},
		{"two\nlines\tand a tab", "two\nlines\tand a tab"},
		{"\x1b[2Jgone", `\x1b[2Jgone`},
		{"\r overwritten", `\x0d overwritten`},
		{"\u009b31m", `\x9b31m`},
		{"\u202egpj.exe", `\u202egpj.exe`},
		{"bad \xff byte", `bad \xff byte`},
		{"a true \uFFFD stays", "a true \uFFFD stays"},
		{"bell \a", `bell \x07`},
	} {
		if got := Clean(tt.in); got != tt.want {
			t.Errorf("clean(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	if got := OneLine("a\n  b\x1b"); got != `a b\x1b` {
		t.Errorf("oneLine gives %q", got)
	}
}

func TestHumanText(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0 ms"}, {41 * time.Millisecond, "41 ms"}, {1500 * time.Millisecond, "1.5 s"},
		{65 * time.Second, "1 m 05 s"}, {125 * time.Minute, "2 h 05 m"}, {50 * time.Hour, "2 d 2 h"},
	} {
		if got := Took(tt.d); got != tt.want {
			t.Errorf("took(%v) = %q, want %q", tt.d, got, tt.want)
		}
	}
	for _, tt := range []struct{ raw, want string }{
		{`{"a": 1, "hash": "sha256_00", "list": [1, 2], "nested": {"x": 1}, "text": "short"}`, "a 1, text short, 2 items of list"},
		{`"one two three four five six seven eight nine ten"`, "10 words"},
		{`{"text": {"$roux":"ref","bytes":1468006,"hash":"sha256_0000000000000000000000000000000000000000000000000000000000000000","size":1468006,"type":"string"}}`, "text 1.4 MiB text"},
		{`{"$roux":"ref","bytes":5000,"hash":"sha256_0000000000000000000000000000000000000000000000000000000000000000","size":12,"type":"list"}`, "4.9 KiB list of 12"},
		{`[1]`, "1 item"}, {`null`, ""}, {`true`, "true"}, {``, ""},
	} {
		if got := Brief([]byte(tt.raw)); got != tt.want {
			t.Errorf("brief(%s) = %q, want %q", tt.raw, got, tt.want)
		}
	}
	if got := Cut("abcdef", 4); got != "abc…" {
		t.Errorf("cut gives %q", got)
	}
}
