// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestDataDir(t *testing.T) {
	t.Chdir(t.TempDir())
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, tt := range []struct {
		goos string
		env  func(string) string
		want string
	}{
		{"linux", env("XDG_DATA_HOME", "/xdg", "HOME", "/home/a"), "/xdg/roux"},
		{"linux", env("XDG_DATA_HOME", "relative", "HOME", "/home/a"), "/home/a/.local/share/roux"},
		{"darwin", env("HOME", "/Users/a"), "/Users/a/Library/Application Support/roux"},
		{"windows", env("LocalAppData", "/local"), "/local/roux"},
		{"linux", env(), ""},
		{"windows", env("HOME", "/home/a"), ""},
	} {
		got, err := userDataDir(tt.goos, tt.env)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", tt.goos, got, err, tt.want)
		}
	}
	if got, err := dataDir("/flag", env("ROUX_DATA", "/env")); got != "/flag" || err != nil {
		t.Errorf("the flag gives %q, %v", got, err)
	}
	if got, err := dataDir("", env("ROUX_DATA", "/env")); got != "/env" || err != nil {
		t.Errorf("ROUX_DATA gives %q, %v", got, err)
	}
}
