// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bundle"
)

// A run that was exported without some of its values is not adopted, because it would
// continue with placeholders in their place, unless the user passes --masked.
func TestMaskedRunsAreNotAdopted(t *testing.T) {
	const ended = "name: r\ninputSchema: {type: object, properties: {token: {type: string, writeOnly: true}}}\n" +
		"steps: [{id: a, transform: {expression: size(input.token)}}, {id: stop, fail: {code: STEP_FAILED, message: enough}}]\n"
	for _, tt := range []struct {
		name, recipe string
		flags        []string
		partial      bool
	}{
		{"an input that is masked", ended, nil, true},
		{"an input that is masked, imported and exported again", ended, []string{"again"}, true},
		{"all is redacted", strings.ReplaceAll(ended, ", writeOnly: true", ""), []string{"--redact"}, true},
		{"all is there", strings.ReplaceAll(ended, ", writeOnly: true", ""), nil, false},
		{"nothing that is marked was given", strings.ReplaceAll(ended, ", writeOnly: true", "}, other: {writeOnly: true"), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			roux := func(data string, args ...string) (string, int) {
				t.Helper()
				t.Setenv("ROUX_DATA", filepath.Join(dir, data))
				out, talk, code := inProcess("", args...)
				return strings.Join(strings.Fields(out+talk), " "), code
			}
			file, packed := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "b.zip")
			if err := os.WriteFile(file, []byte(tt.recipe), 0o600); err != nil {
				t.Fatal(err)
			}
			if said, code := roux("from", "run", file, "--input", "token=hush-hush", "-q"); code != fault.ExitFailed {
				t.Fatal(said)
			}
			if len(tt.flags) > 0 && tt.flags[0] == "again" {
				roux("from", "export", "@last", "--out", packed)
				roux("middle", "import", packed)
				roux("middle", "export", "@last", "--out", packed, "--force")
			} else if said, code := roux("from", append([]string{"export", "@last", "--out", packed}, tt.flags...)...); code != 0 {
				t.Fatal(said)
			}
			if said, code := roux("to", "import", packed); code != 0 {
				t.Fatal(said)
			}
			if said, _ := roux("to", "runs", "get", "@last"); strings.Contains(said, bundle.WithoutMasked) != tt.partial {
				t.Errorf("runs get, partial %t: %s", tt.partial, said)
			}
			said, code := roux("to", "runs", "adopt", "@last")
			if refused := code == fault.ExitConflict && strings.Contains(said, "--masked"); refused != tt.partial {
				t.Errorf("adopt: exit %d: %s", code, said)
			}
			if !tt.partial {
				return
			}
			if said, code := roux("to", "runs", "retry", "@last"); code == 0 || !strings.Contains(said, "adopt") {
				t.Errorf("retry: exit %d: %s", code, said)
			}
			if said, code := roux("to", "runs", "adopt", "@last", "--masked"); code != fault.ExitFailed && code != 0 {
				t.Errorf("adopt --masked: exit %d: %s", code, said)
			}
		})
	}
}

// estimate leaves imported runs out: the time and credits that they took elsewhere, if
// at all, do not predict those of a run here.
func TestEstimateLeavesImportedRunsOut(t *testing.T) {
	dir := t.TempDir()
	file, packed := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "b.zip")
	if err := os.WriteFile(file, []byte("name: r\nsteps: [{id: a, transform: {expression: '1'}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	roux := func(data string, args ...string) string {
		t.Helper()
		t.Setenv("ROUX_DATA", filepath.Join(dir, data))
		out, talk, code := inProcess("", args...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, talk)
		}
		return out
	}
	roux("from", "run", file, "-q")
	roux("from", "export", "@last", "--out", packed)
	roux("to", "import", packed)
	if said := roux("to", "estimate", file); strings.Contains(said, "took before") {
		t.Errorf("an imported run is counted: %s", said)
	}
	roux("to", "runs", "adopt", "@last")
	if said := roux("to", "estimate", file); !strings.Contains(said, "took before    1 run;") {
		t.Errorf("an adopted run is not counted: %s", said)
	}
}
