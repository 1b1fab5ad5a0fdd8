// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// X25: a recipe is applied together with a lens that it needs, and what cannot fit changes nothing.
func TestX25_ApplyLensWithRecipe(t *testing.T) {
	env, dir := []string{"ROUX_DATA=" + shortDir(t)}, t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lenses"), 0o755); err != nil {
		t.Fatal(err)
	}
	apply := func(version, template, bindings, more string, want int, part string, args ...string) {
		t.Helper()
		recipe := "name: r\nversion: " + version + "\nsteps:\n- id: ask\n  action: {name: llm, lens: q}\n  inputBindings: {" + bindings + "}\n" + more
		for name, text := range map[string]string{"r.yaml": recipe, "lenses/q.yaml": "lens: q\ntemplate: '" + template + "'\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, talk, code := roux(t, env, append([]string{"apply", dir}, args...)...)
		if code != want || !strings.Contains(out+talk, part) {
			t.Errorf("apply of %s: exit %d, want %d and %q:\n%s%s", version, code, want, part, out, talk)
		}
	}
	current := func(version string) {
		t.Helper()
		if l := object[struct{ Version string }](t, env, "lenses", "show", "q"); l.Version != version {
			t.Errorf("the current version is %s, want %s", l.Version, version)
		}
	}
	const a, ab = `a: {expression: "'x'"}`, `a: {expression: "'x'"}, b: {expression: "'y'"}`
	apply("1.0.0", "{{ a }}", a, "", fault.ExitOK, "registered")
	current("1")
	apply("1.1.0", "{{ a }} {{ b }}", ab, "", fault.ExitOK, "would be registered", "--dry-run")
	current("1")
	apply("1.1.0", "{{ a }} {{ b }}", ab, "", fault.ExitOK, "registered")
	current("2")
	apply("1.2.0", "{{ a }} {{ c }}", ab, "", fault.ExitDefinition, `the lens q that is to be put has no placeholder "b"`)
	current("2")
	apply("1.2.0", "{{ a }}", a, "- {id: other, action: {name: no-such-action}}\n", fault.ExitDefinition, "nothing was registered")
	current("2")
	apply("1.2.0", "{{ a }} {{ b }} {{ c }}", `a: {expression: "1 +"}, c: {expression: "1"}`, "", fault.ExitDefinition, "nothing was registered")
	current("2")
	apply("1.2.0", "{{ a }}", a, "", fault.ExitOK, "registered")
	current("3")
}
