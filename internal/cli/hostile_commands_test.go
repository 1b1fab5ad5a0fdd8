// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/view"
)

// plainRecipe is enough for commands that want one.
const plainRecipe = "name: plain\nsteps:\n  - {id: a, transform: {expression: '1', outputBinding: one}}\n"

// ran returns a directory as yard does, after a run of plain.yaml, a recipe in its
// working directory.
func ran(t *testing.T) (dir string) {
	t.Helper()
	dir, _ = yard(t)
	if err := os.WriteFile("plain.yaml", []byte(plainRecipe), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, talk, code := inProcess("", "run", "plain.yaml", "-q"); code != 0 {
		t.Fatal(talk)
	}
	return dir
}

// A15, A31: a hostile name in a place where a command reads changes no file, and no
// message sends control characters to the terminal.
func TestA15_A31_NamesThatAreRead(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it starts hundreds of processes, one after the other")
	}
	dir := ran(t)
	before := fingerprint(t, dir)
	entries := [][]string{
		{"NAME"}, {"help", "NAME"}, {"version", "NAME"}, {"--NAME"}, {"version", "--NAME"}, {"version", "-o", "NAME"}, {"version", "-o", "template=NAME"},
		{"runs", "list", "--time", "NAME"}, {"runs", "NAME"}, {"runs", "list", "--timeout", "NAME"}, {"runs", "list", "--status", "NAME"},
		{"runs", "list", "--recipe", "NAME"}, {"runs", "list", "--data", "NAME"}, {"runs", "list", "--data", "plain.yaml/NAME"},
		{"run", "--", "NAME"}, {"run", "plain.yaml", "--input", "NAME"}, {"run", "plain.yaml", "--input", "@NAME"}, {"run", "plain.yaml", "--file", "NAME*"},
		{"run", "plain.yaml", "--expect", "NAME"}, {"run", "plain.yaml", "--max-source", "NAME"},
		{"validate", "--", "NAME"}, {"fmt", "--check", "--", "NAME"}, {"fmt", "--", "NAME"}, {"estimate", "--", "NAME"}, {"graph", "--", "NAME"},
		{"graph", "plain.yaml", "-o", "NAME"}, {"graph", "plain.yaml", "--direction", "NAME"}, {"graph", "plain.yaml", "--out", "NAME.unknown"},
		{"import", "--", "NAME"}, {"export", "--", "NAME"}, {"trace", "--", "NAME"}, {"logs", "--", "NAME"}, {"logs", "@last", "--step", "NAME"},
		{"explain", "--", "@last", "NAME"}, {"replay", "--", "NAME"}, {"diff", "--", "@last", "NAME"}, {"runs", "signal", "@last", "--", "NAME"},
		{"runs", "retry", "@last", "--from", "NAME"}, {"init", "--example", "NAME"}, {"schema", "--", "NAME"}, {"config", "get", "--", "NAME"},
		{"config", "explain", "--", "NAME"}, {"actions", "get", "--", "NAME"}, {"actions", "call", "--", "NAME"}, {"actions", "call", "hash", "--input", "NAME"},
		{"actions", "call", "hash", "--input", "@NAME"}, {"actions", "call", "hash", "--file", "NAME*"}, {"files", "put", "--", "NAME"},
		{"actions", "list", "--takes", "NAME"}, {"files", "ls", "--type", "NAME"}, {"files", "ls", "--name", "NAME"}, {"doctor", "--data", "NAME"},
		{"resume", "--", "NAME"}, {"__complete", "run", "NAME"}, {"__complete", "runs", "get", "NAME"},
	}
	for _, entry := range entries {
		t.Run(strings.Join(entry, " "), func(t *testing.T) {
			for _, name := range hostileNames {
				if _, err := os.Stat(name); err == nil {
					continue // the name exists, so naming it is legitimate
				}
				args := make([]string, len(entry))
				for i, arg := range entry {
					args[i] = strings.ReplaceAll(arg, "NAME", name)
				}
				out, talk, code := inProcess("", args...)
				if code == fault.ExitInternal {
					t.Errorf("%.60q: exit %d\n%s", args, code, talk)
				}
				if entry[0] == "__complete" || strings.HasPrefix(entry[len(entry)-1], "template=") {
					out = strings.ReplaceAll(out, "\t", " ") // tabs separate columns or come from the template
				}
				harmless(t, fmt.Sprintf("%.60q", args), out+talk)
				if view.Clean(name) != name {
					harmless(t, fmt.Sprintf("%.60q -o json", args), jsonTalk(args))
				}
			}
		})
	}
	if after := fingerprint(t, dir); after != before {
		t.Error("a name that was only to be read has changed something")
	}
}

// jsonTalk returns what a command writes to standard error with -o json. Standard
// output is not checked: JSON escapes control characters, and all others are data.
func jsonTalk(args []string) string {
	if args[0] == "__complete" || len(args) > 1 && args[0] == "version" {
		return ""
	}
	rest := args
	for i, a := range args {
		if a == "--" {
			rest = append(append(append([]string{}, args[:i]...), "-o", "json"), args[i:]...)
			break
		}
	}
	_, talk, _ := inProcess("", rest...)
	return talk
}

// A15, A31: a hostile name in a place where a command writes creates a file or
// directory of that name in the intended directory, or nothing.
func TestA15_A31_NamesThatAreWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it starts hundreds of processes, one after the other")
	}
	dir := ran(t)
	work := filepath.Join(dir, "out") // not part of the fingerprint
	before := fingerprint(t, dir)
	recipe := filepath.Join(dir, "in", "plain.yaml")
	for i, name := range hostileNames {
		if filepath.IsAbs(name) || strings.Contains(name, "..") || name == "." || strings.HasPrefix(name, "-") {
			continue // the user may well name another directory; what is written there is wanted
		}
		for _, entry := range [][]string{
			{"graph", recipe, "-o", "svg", "--out", name}, {"graph", recipe, "--out", name + ".svg"}, {"export", "@last", "--out", name}, {"init", name}, {"schema", "--write", name},
			{"files", "get", "SOME", "-O", name}, {"run", recipe, "--save", name},
		} {
			sub := filepath.Join(work, fmt.Sprint(i), entry[0])
			if err := os.MkdirAll(sub, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Chdir(sub)
			if entry[0] == "files" {
				out, talk, code := inProcess("kept", "files", "put", "-", "-o", "name")
				if code != 0 {
					t.Fatal(talk)
				}
				entry[2] = strings.TrimSpace(out)
			}
			out, talk, code := inProcess("", entry...)
			if code == fault.ExitInternal {
				t.Errorf("%.60q: exit %d\n%s", entry, code, talk)
			}
			harmless(t, fmt.Sprintf("%.60q", entry), out+talk)
		}
	}
	if after := fingerprint(t, dir); after != before {
		t.Error("something was written elsewhere")
	}
}

// A15: a link at the path of a file that a command writes is never followed. Only fmt
// follows a link, of the user's own, because it rewrites a text where it already is.
func TestA15_LinksInTheWay(t *testing.T) {
	dir := ran(t)
	out, _, _ := inProcess("content", "files", "put", "-", "-o", "name")
	hash := strings.TrimSpace(out)
	saving := filepath.Join(dir, "out", "saving.yaml")
	err := os.WriteFile(saving, []byte("name: s\nsteps:\n  - {id: c, action: {name: copy-file, parameters: {name: made.txt}}, outputBinding: c}\noutputs: {file: c.file}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	secret, folder := filepath.Join(dir, "secret"), filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		links map[string]string // name below the working directory -> where it leads
		args  []string
	}{
		{"graph --out", map[string]string{"p.svg": secret}, []string{"graph", "../in/plain.yaml", "--out", "p.svg"}},
		{"export --out", map[string]string{"b.zip": secret}, []string{"export", "@last", "--out", "b.zip"}},
		{"export --out --force", map[string]string{"b.zip": secret}, []string{"export", "@last", "--out", "b.zip", "--force"}},
		{"init, a file", map[string]string{"p/README.md": secret}, []string{"init", "p"}},
		{"init, a dangling link", map[string]string{"p/documents.yaml": filepath.Join(folder, "new")}, []string{"init", "p"}},
		{"init, a directory", map[string]string{"p/files": folder}, []string{"init", "p"}},
		{"init, the schemas", map[string]string{"p/.vscode": folder}, []string{"init", "p"}},
		{"init, a schema", map[string]string{"p/.vscode/recipe.schema.json": secret}, []string{"init", "p"}},
		{"schema --write, a schema", map[string]string{"v/recipe.schema.json": secret}, []string{"schema", "--write", "v"}},
		{"schema --write, the settings", map[string]string{"v/settings.json": secret}, []string{"schema", "--write", "v"}},
		{"files get", map[string]string{"f": secret}, []string{"files", "get", hash, "-O", "f", "--force"}},
		{"run --save", map[string]string{"s/made.txt": secret}, []string{"run", saving, "--file", hash, "--save", "s", "-q"}},
		{"run --save, a dangling link", map[string]string{"s/made.txt": filepath.Join(folder, "new")}, []string{"run", saving, "--file", hash, "--save", "s", "-q"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			work := filepath.Join(dir, "out", strings.ReplaceAll(tt.name, " ", "_"))
			for at, to := range tt.links {
				at = filepath.Join(work, filepath.FromSlash(at))
				if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, at); err != nil {
					t.Skipf("no symbolic links here: %v", err)
				}
			}
			t.Chdir(work)
			args := append([]string{}, tt.args...)
			if args[0] == "graph" {
				args[1] = filepath.Join(dir, "in", "plain.yaml")
			}
			before := fingerprint(t, dir)
			out, talk, code := inProcess("", args...)
			if after := fingerprint(t, dir); after != before {
				t.Errorf("exit %d: it was written through the link\n%s%s", code, out, talk)
			}
			if code == fault.ExitInternal {
				t.Errorf("exit %d: %s", code, talk)
			}
		})
	}
}

// changedStart changes the first event of the journal in a bundle.
func changedStart(t *testing.T, m map[string][]byte, change func(st *journal.Start)) {
	t.Helper()
	var frames []byte
	err := journal.EachEvent(m["journal.bin"], func(ev *journal.Event) error {
		if ev.Kind == journal.EvRunStarted {
			var st journal.Start
			if err := json.Unmarshal(ev.Data, &st); err != nil {
				return err
			}
			change(&st)
			data, err := json.Marshal(st)
			if err != nil {
				return err
			}
			copied := *ev
			copied.Data = data
			ev = &copied
		}
		frames = append(frames, journal.AppendFrame(nil, []journal.Event{*ev})...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m["journal.bin"] = frames
}

// A15, A31: a bundle comes from a stranger. Entries with unexpected names are not
// unpacked. A run whose id Roux would not generate is refused, because an export uses
// the id as a file name. Texts in the bundle send no control characters to the
// terminal.
func TestA15_A31_BundlesOfStrangers(t *testing.T) {
	good := parts(t, exportedBundle(t))
	dir, _ := yard(t)
	before := fingerprint(t, dir)
	fresh := func() map[string][]byte {
		m := map[string][]byte{}
		for k, v := range good {
			m[k] = bytes.Clone(v)
		}
		return m
	}
	var man bundle.Manifest
	if err := json.Unmarshal(good["manifest.json"], &man); err != nil {
		t.Fatal(err)
	}
	for _, id := range append([]string{"run_", "run_01", man.Run + "X", strings.ToLower(man.Run), "RUN_" + man.Run[4:], "../" + man.Run}, hostileNames...) {
		if !json.Valid([]byte(id)) && strings.ToValidUTF8(id, "") != id {
			continue // JSON has no such text
		}
		m := fresh()
		changed := man
		changed.Run = id
		text, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		m["manifest.json"] = text
		changedStart(t, m, func(st *journal.Start) { st.Run = id })
		_, talk, code := inProcess("", "import", pack(t, m))
		if code != fault.ExitFailed && code != fault.ExitUsage || !strings.Contains(talk, "FILE_INVALID") {
			t.Errorf("import of the run %.40q: exit %d\n%s", id, code, talk)
		}
		harmless(t, fmt.Sprintf("import of the run %.40q", id), talk)
	}
	for _, name := range hostileNames {
		m := fresh()
		m[name] = []byte("odd")
		_, talk, code := inProcess("", "import", packAsIs(t, m))
		if code != fault.ExitFailed || !strings.Contains(talk, "FILE_INVALID") {
			t.Errorf("import with a member %.40q: exit %d\n%s", name, code, talk)
		}
		harmless(t, fmt.Sprintf("import with a member %.40q", name), talk)
	}
	m := fresh()
	evil := "\x1b]0;owned\x07\u202eabc\r\nline\u2066"
	changed := man
	changed.Recipe, changed.Status = evil, evil
	text, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	m["manifest.json"] = text
	changedStart(t, m, func(st *journal.Start) {
		st.Recipe, st.Version, st.Correlation = evil, evil, evil
		st.Parameters["secret"] = evil
		st.Labels = map[string]string{evil: evil}
		st.Files = []journal.File{{Hash: evil, Name: evil, MimeType: evil}}
	})
	path := pack(t, m)
	for i, args := range [][]string{
		{"import", path}, {"runs", "list"}, {"runs", "get", "@last"}, {"events", "@last"}, {"logs", "@last"}, {"trace", "@last"}, {"explain", "@last"},
		{"explain", "@last", "talk"}, {"replay", "@last"}, {"diff", "@last", "@last"}, {"graph", "@last"}, {"graph", "@last", "-o", "mermaid"},
		{"graph", "@last", "-o", "dot"}, {"graph", "@last", "-o", "svg"}, {"estimate", "@last"}, {"doctor"}, {"export", "@last", "--out", filepath.Join(dir, "out", "again.zip")},
		{"runs", "list", "-o", "name"}, {"runs", "get", "@last", "-o", "yaml"}, {"runs", "retry", "@last"},
	} {
		out, talk, code := inProcess("", args...)
		if i < 4 && code != 0 || code == fault.ExitInternal {
			t.Errorf("%v: exit %d\n%s", args, code, talk)
		}
		harmless(t, strings.Join(args[:1], " ")+fmt.Sprint(args[1:]), out+talk)
	}
	if after := fingerprint(t, dir); after != before {
		t.Error("something outside the data directory has changed")
	}
}

// A31: the path of a project and its files may be hostile too: names of directories,
// settings and recipes send no control characters to the terminal.
func TestA31_HostilePlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("one process after the other: the race detector has nothing to see here")
	}
	const evil = "\x1b]0;owned\x07\u202egnp\r\x1b[2J"
	dir, _ := yard(t)
	place := filepath.Join(dir, "out", "a"+evil+"b")
	if err := os.MkdirAll(place, 0o700); err != nil {
		t.Skipf("there can be no such directory here: %v", err)
	}
	t.Chdir(place)
	quoted, err := json.Marshal(evil)
	if err != nil {
		t.Fatal(err)
	}
	q := string(quoted)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("plain.yaml", plainRecipe)
	write("name.json", `{"name":`+q+`,"description":`+q+`,"steps":[{"id":"a","name":`+q+`,"transform":{"expression":"1"}}]}`)
	write("text.json", `{"name":"t","outputs":{"o":"v"},"steps":[{"id":"a","transform":{"expression":`+strings.ReplaceAll(q, `\`, `\\`)+`,"outputBinding":"v"}}]}`)
	write("key.json", `{"name":"k",`+q+`:1,"steps":[{"id":"a",`+q+`:2,"transform":{"expression":"1"}}]}`)
	write("id.json", `{"name":"i","steps":[{"id":`+q+`,"transform":{"expression":"1"}},{"id":`+q+`,"after":[`+q+`],"transform":{"expression":"1"}}]}`)
	write("cel.json", `{"name":"c","steps":[{"id":"a","transform":{"expression":`+q+`}},{"id":"b","condition":{"expression":`+q+`,"then":[]}}]}`)
	write("action.json", `{"name":"a","steps":[{"id":"a","action":{"name":`+q+`,"version":`+q+`}},{"id":"b","action":{"name":"copy-file","parameters":{`+q+`:`+q+`}}}]}`)
	write("fail.json", `{"name":"f","steps":[{"id":"a","fail":{"code":"STEP_FAILED","message":`+q+`}}]}`)
	write("raw.yaml", "name: "+evil+"\nsteps: ["+evil+"]\n")
	write("schema.json", `{"name":"s","inputSchema":{"type":"object","properties":{`+q+`:{"type":"string","description":`+q+`}},"required":[`+q+`]},"steps":[{"id":"a","transform":{"expression":"1"}}]}`)
	entries := [][]string{
		{"run", "plain.yaml"}, {"run", "plain.yaml", "-v"}, {"runs", "list"}, {"runs", "get", "@last"}, {"doctor"}, {"config", "list"}, {"config", "explain", "data"},
		{"config", "get", "data"}, {"init", "."}, {"init"}, {"schema", "--write", ".vscode"}, {"schema", "--write", place}, {"graph", "plain.yaml", "--out", "p.svg"},
		{"graph", "plain.yaml", "--out", filepath.Join(place, "q.svg")}, {"export", "@last"}, {"export", "@last"}, {"export", "@last", "--out", filepath.Join(place, "b.zip")},
		{"validate", filepath.Join(place, "plain.yaml")}, {"fmt", filepath.Join(place, "plain.yaml")}, {"run", filepath.Join(place, "missing.yaml")},
		{"files", "put", filepath.Join(place, "plain.yaml")}, {"files", "put", place}, {"files", "put", filepath.Join(place, "missing")}, {"run", "plain.yaml", "--save", place, "--file", place},
		{"run", "plain.yaml", "--data", filepath.Join(place, "plain.yaml")}, {"runs", "list", "--data", filepath.Join(place, "none")}, {"import", filepath.Join(place, "plain.yaml")},
	}
	for _, recipe := range []string{"name.json", "text.json", "key.json", "id.json", "cel.json", "action.json", "fail.json", "raw.yaml", "schema.json"} {
		entries = append(entries, [][]string{
			{"validate", recipe}, {"run", recipe}, {"run", recipe, "-v"}, {"estimate", recipe}, {"graph", recipe}, {"fmt", "--diff", recipe}, {"fmt", "--check", recipe},
			{"runs", "get", "@last"}, {"events", "@last"}, {"explain", "@last"}, {"trace", "@last"}, {"logs", "@last"},
		}...)
	}
	for _, settings := range []string{"", "data: .roux\n", "output: " + q + "\n", q + ": 1\n", "egress: {allow: [" + q + "]}\n", "retain: {runs: " + q + "}\n", evil} {
		if settings != "" {
			write(config.ProjectFile, settings)
			entries = [][]string{{"config", "list"}, {"config", "explain", "output"}, {"doctor"}, {"run", "plain.yaml"}, {"version"}}
		}
		for _, args := range entries {
			out, talk, code := inProcess("", args...)
			if code == fault.ExitInternal {
				t.Errorf("%.60q with %q: exit %d\n%q", args, settings, code, talk)
			}
			harmless(t, fmt.Sprintf("%.80q with %q", args, settings), out+talk)
		}
	}
}
