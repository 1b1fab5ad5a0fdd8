// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/secrets"
)

// The end of the last line is not part of a value, wherever the value comes from.
func TestSecretValueWithoutLineEnd(t *testing.T) {
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "token")
	t.Setenv("ROUX_DATA", data)
	for _, end := range []string{"", "\n", "\r\n"} {
		text := "a token" + end
		t.Setenv("TOKEN", text)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, from := range map[string]struct {
			stdin string
			flags []string
		}{
			"stdin": {text, nil},
			"file":  {"", []string{"--from-file", file}},
			"env":   {"", []string{"--from-env", "TOKEN"}},
		} {
			if _, talk, code := inProcess(from.stdin, append([]string{"secrets", "set", name}, from.flags...)...); code != fault.ExitOK {
				t.Fatalf("exit %d: %s", code, talk)
			}
			v := secrets.New(secrets.Config{Data: data}).Vault()
			if got, err := v.Secret(t.Context(), "local", name); err != nil || got != "a token" {
				t.Errorf("%s with the end %q: %q, %v", name, end, got, err)
			}
		}
	}
}
