// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/registry"
)

// What a text extends is found below its directory only, and nothing of a file outside is shown (A15, X242).
func TestX242_A15_NamesOfTextsThatAreExtended(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret.yaml")
	for file, text := range map[string]string{
		secret:                           "name: hidden\nsteps: [{id: hidden, transform: {expression: '1'}}]\n",
		filepath.Join(dir, "base.yaml"):  "name: base\nsteps: [{id: a, transform: {expression: '1'}}]\n",
		filepath.Join(dir, "x/own.yaml"): "name: x\nextends: [../base.yaml]\n",
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	for name, good := range map[string]bool{
		"base.yaml": true, "x/own.yaml": true, "./base.yaml": true,
		"../" + filepath.Base(outside) + "/secret.yaml": false, secret: false, "link.yaml": false, "x/../../secret.yaml": false, "base.yaml%2e": false, `"a\0b"`: false, ".": false, "/dev/zero": false,
	} {
		main := filepath.Join(dir, "main.yaml")
		text := "name: main\nextends: [" + name + "]\nsteps: [{id: own, transform: {expression: '1'}}]\n"
		p, _, _, diags := compile.Source(main, []byte(text), compile.Options{Actions: catalogue.New(), Recipes: registry.NewFiles(registry.Config{Recipe: main, MaxSource: 1 << 20})})
		if good != (p != nil) {
			t.Errorf("%s: %v", name, diags)
		}
		for _, d := range diags {
			if strings.Contains(d.Msg, "hidden") || !good && d.Severity == fault.SeverityError && d.Code != fault.RecipeNotFound && d.Code != fault.RecipeInvalid {
				t.Errorf("%s: %v", name, d)
			}
		}
	}
}
