// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"strings"
	"testing"
)

// parseRun reads a command with those parameters that its arguments name: p, r and d are texts, of
// which d may begin with -, n is a number, q a switch and f a file.
func parseRun(t *testing.T, run, stdin string) error {
	t.Helper()
	params := map[string]any{}
	for name, p := range map[string]map[string]any{"p": {}, "r": {}, "d": {"leading_dash": true}, "n": {"type": "integer"}, "q": {"type": "boolean"}, "f": {"type": "file", "as": "in.txt"}} {
		if strings.Contains(run+stdin, "{"+name+"}") || strings.Contains(run, `"if": "`+name+`"`) {
			params[name] = p
		}
	}
	text, err := json.Marshal(map[string]any{"it": map[string]any{"run": json.RawMessage(run), "parameters": params, "stdin": stdin}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse(string(text))
	return err
}

// A value of a recipe is never the program of an interpreter, whatever options come before it and
// whichever arguments with a condition are there.
func TestI19_ProgramsAreTheOperators(t *testing.T) {
	for _, run := range []string{
		`["sh", "{p}"]`,
		`["sh", "-c", "{p}"]`,
		`["sh", "-c", "--", "{p}"]`,
		`["sh", "--", "{p}"]`,
		`["sh", "-euo", "pipefail", "{p}"]`,
		`["sh", "-oe", "pipefail", "{p}"]`,
		`["bash", "-c", "-x", "{p}"]`,
		`["bash", "+x", "{p}"]`,
		`["bash", "--rcfile", "x", "{p}"]`,
		`["bash", "--rcfile", "{p}", "x"]`,
		`["bash", "/dev/stdin", "{p}"]`,
		`["sh", "-c", {"if": "q", "args": ["echo"]}, "{p}"]`,
		`["sh", {"if": "q", "args": ["-c", "echo"]}, "{p}"]`,
		`["sh", {"if": "q", "args": ["-o"]}, "posix", "{p}"]`,
		`["sh", {"if": "q", "args": ["-c", "{p}"]}]`,
		`["fish", "-i", "{p}"]`,
		`["/usr/bin/python3", "-Ic", "{p}"]`,
		`["python3.12", "-W", "ignore", "{p}"]`,
		`["python3", "-m", "{p}"]`,
		`["python3", "--unheard-of", "x", "{p}"]`,
		`["python3", "-", "{p}"]`,
		`["perl", "-lne", "{p}"]`,
		`["perl", "-ne", "print", "-e", "{p}"]`,
		`["perl", "-I", "lib", "{p}"]`,
		`["ruby", "-r", "json", "{p}"]`,
		`["ruby", "-e", "1", "-r", "{p}"]`,
		`["node", "-p", "{p}"]`,
		`["node", "-pe", "{p}"]`,
		`["node", "-p", "-e", "{p}"]`,
		`["node", "-p", "1", "-e", "{p}"]`,
		`["node", "--eval", "1", "--import", "{p}"]`,
		`["deno", "run", "--allow-read", "{p}"]`,
		`["deno", "eval", "{p}"]`,
		`["bun", "run", "{p}"]`,
		`["php", "-r", "{p}"]`,
		`["lua5.4", "-l", "x", "{p}"]`,
		`["awk", "-F", ",", "{p}"]`,
		`["awk", "-F,", "{p}"]`,
		`["gawk", "-f", "{p}"]`,
		`["gawk", "-f", "a.awk", "-f", "{p}"]`,
		`["mawk", "-v", "a=1", "--", "{p}"]`,
		`["sed", "{p}"]`,
		`["sed", "-n", "{p}"]`,
		`["sed", "-n", "{n}"]`,
		`["sed", "-n", "--", "{p}"]`,
		`["sed", "s/a/b/", "-e", "{p}"]`,
		`["sed", "s/a/b/", "--expression", "{p}"]`,
		`["pwsh", "-Command", "echo", "x", "{p}"]`,
		`["pwsh", "-NoProfile", "-File", "{p}"]`,
		`["Rscript", "-e", "{p}"]`,
		`["env", "{p}"]`,
		`["env", "A=b", "{p}"]`,
		`["env", "-u", "A", "{p}"]`,
		`["env", "A=b", "sh", "-c", "{p}"]`,
		`["env", "-S", "sh -c", "{p}"]`,
		`["xargs", "-n", "1", "{p}"]`,
		`["xargs", "-n", "1", "sh", "-c", "{p}"]`,
		`["busybox", "{p}"]`,
		`["busybox", "awk", "{p}"]`,
		`["env", "--", "A=b", "{p}"]`,
		`["xargs", "ls", "{p}"]`,
		`["lua", "-e", "1", "{p}"]`,
		`["bash", "-co", "pipefail", "{p}"]`,
		`["bash", "-oc", "pipefail", "{p}"]`,
		`["python3", "-Wc", "{p}"]`,
		`["python3", "-W", "{p}", "script.py"]`,
		`["perl", "-e", "1", "-x", "{p}"]`,
		`["perl", "-e", "1", "{d}"]`,
		`["timeout", "-k", "5", "10", "{p}"]`,
		`["timeout", "10", "nice", "-n", "5", "python3", "-c", "{p}"]`,
	} {
		if err := parseRun(t, run, ""); err == nil || !strings.Contains(err.Error(), "could run the value") {
			t.Errorf("%s: %v", run, err)
		}
	}
	for _, run := range []string{`["sh"]`, `["bash", "-s", "x", "y"]`, `["python3", "-", "x", "y"]`, `["perl", "/dev/stdin"]`, `["sed", "-f", "-"]`, `["env", "A=b", "sh"]`, `["xargs", "ls"]`, `["sh", {"if": "q", "args": ["script"]}]`} {
		if err := parseRun(t, run, "{p}"); err == nil || !strings.Contains(err.Error(), "from its standard input") {
			t.Errorf("%s: the standard input: %v", run, err)
		}
	}
}

// What the program of an operator does with a value is the operator's.
func TestProgramsThatGetValues(t *testing.T) {
	for _, run := range []string{
		`["sh", "-c", "script $1", "sh", "{p}"]`,
		`["sh", "-c", "script $0", "{p}", "{r}"]`,
		`["sh", "-euc", "script $1", "sh", "-e", "{p}"]`,
		`["bash", "-Eeuo", "pipefail", "-c", "echo $0", "{p}"]`,
		`["sh", "script.sh", {"if": "q", "args": ["-c", "{r}"]}, "{p}"]`,
		`["sh", {"if": "q", "args": ["-x"]}, "script.sh", "{p}"]`,
		`["bash", "--unheard-of", "--", "script.sh", "{p}"]`,
		`["python3", "script.py", "{p}"]`,
		`["python3", "script.py", "-c", "{p}"]`,
		`["python3", "-u", "-W", "ignore", "-Xdev", "script.py", "{p}"]`,
		`["python3", {"if": "q", "args": ["-W", "ignore"]}, "script.py", "{p}"]`,
		`["python3", "-m", "json.tool", "{p}"]`,
		`["python3", "{f}", "{p}"]`,
		`["perl", "-ne", "print", "--", "{p}"]`,
		`["perl", "-e", "print @ARGV", "{p}"]`,
		`["perl", "-e", "print @ARGV", "--", "{d}"]`,
		`["ruby", "-rjson", "-e", "puts ARGV", "{p}"]`,
		`["node", "script.js", "{p}"]`,
		`["node", "--no-warnings", "--max-old-space-size=100", "script.js", "-e", "{p}"]`,
		`["deno", "run", "--allow-read", "script.ts", "{p}"]`,
		`["awk", "-F", ",", "{print $1}", "{p}"]`,
		`["awk", "-F,", "{print $1}", "{p}"]`,
		`["awk", "-F,", "--", "{print $1}", "{p}"]`,
		`["awk", "-f", "prog.awk", "{p}"]`,
		`["sed", "-nE", "s/a/b/p", "{p}"]`,
		`["sed", "-i", "s/a/b/", "{f}"]`,
		`["sed", "-e", "s/a/b/", "{p}", "{r}"]`,
		`["pwsh", "-NoProfile", "-File", "x.ps1", "{p}"]`,
		`["env", "A=b", "ls", "{p}"]`,
		`["env", "A=b", "sh", "-c", "echo $0", "{p}"]`,
		`["env", "-u", "A", "--", "B=c", "ls", "{p}"]`,
		`["timeout", "-k", "5", "10s", "ls", "{p}"]`,
		`["sh", "-c", "-x", "--", "script $0", "{p}"]`,
		`["sh", "-c", "--", "script $0", "{p}"]`,
		`["deno", "eval", "1", "{p}"]`,
		`["/opt/tool", "-e", "{p}"]`,
	} {
		if err := parseRun(t, run, ""); err != nil {
			t.Errorf("%s: %v", run, err)
		}
	}
	for _, run := range []string{`["sh", "-c", "cat"]`, `["python3", "-m", "json.tool"]`, `["sed", "s/a/b/"]`, `["env", "A=b", "cat"]`, `["wc", "-l"]`} {
		if err := parseRun(t, run, "{p}"); err != nil {
			t.Errorf("%s: the standard input: %v", run, err)
		}
	}
	if err := parseRun(t, `["sh"]`, "{f}"); err != nil {
		t.Errorf("a file of the run that is the program by its name: %v", err)
	}
}
