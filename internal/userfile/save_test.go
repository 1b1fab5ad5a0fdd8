// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"strings"
	"testing"
)

// The name under which a file is saved is a plain one on every system.
func TestA15_SafeName(t *testing.T) {
	for in, want := range map[string]string{
		"report.pdf": "report.pdf", "": "SUB", "..": "SUB", ".": "SUB", "...": "SUB", "/etc/passwd": "passwd", `C:\x\y.txt`: "y.txt",
		"CON": "_CON", "con.txt": "_con.txt", "Aux ": "_Aux", "com1.pdf": "_com1.pdf", "com10.pdf": "com10.pdf", "LPT9": "_LPT9", "console": "console",
		"nul .txt": "_nul .txt", "CONIN$": "_CONIN$", ".bashrc": "_bashrc", "-rf": "_rf", "a:b": "a_b", "a\x00b": "a_b", "a\r\nb": "a__b",
		"\u202egnp.exe": "_gnp.exe", "x. . ": "x", "été.md": "été.md", strings.Repeat("é", 300): strings.Repeat("é", 100),
		"what?*": "what__", "  x": "_ x", "\xff": "_",
	} {
		if got := SafeName(in, "SUB"); got != want {
			t.Errorf("SafeName(%.40q) = %q, want %q", in, got, want)
		}
	}
}
