// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/confine"
)

var pageBlock = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// The commands of a page are run in order, with the files that the page shows and those of
// the examples. Each line that the page shows of their output is there; … stands for any
// text in it.
func TestMoneyPage(t *testing.T) { runPage(t, "money", "metered-batch.yaml", "metered-batch.json") }

func TestCachePage(t *testing.T) { runPage(t, "cache") }

// TestDagPage: docs/dag.md.
func TestDagPage(t *testing.T) {
	runServed(t, freeAddress(t), servedPage{name: "dag", tools: []string{"curl"}, least: 12, first: rouxOnPath(t)})
}

// TestDialectsPage: the page of all dialects, whose four texts have one plan.
func TestDialectsPage(t *testing.T) {
	runPage(t, "dialects") // goes into a directory with the files of the page
	out, _, _ := inProcess("", "validate", "-o", "template={{ plan }}", "text.recipe.yaml", "text.dag.yaml", "text.flow.yaml", "text.pipeline.yaml")
	if plans := strings.Fields(out); len(plans) != 4 || plans[0] != plans[1] || plans[0] != plans[2] || plans[0] != plans[3] {
		t.Errorf("the plans are %v, want four times the same", plans)
	}
}

func TestImportPage(t *testing.T) { runPage(t, "import") }

func TestNestingPage(t *testing.T) { runPage(t, "nesting", "pdf-library.yaml", "receipts") }

func TestSecretsPage(t *testing.T) {
	t.Setenv("API_TOKEN", "a-token-that-nobody-sees")
	runPage(t, "secrets")
}

func TestCommandsPage(t *testing.T) {
	if err := confine.Check(t.Context()); err != nil {
		t.Skip("this kernel does not confine:", err)
	}
	runPage(t, "commands")
}

func TestBackupPage(t *testing.T) { runPage(t, "backup") }

// X225: the lines of the log are those of the page, too.
func TestObservabilityPage(t *testing.T) { runPage(t, "observability") }

func runPage(t *testing.T, name string, files ...string) {
	page, err := os.ReadFile("../../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	if err := os.Mkdir(filepath.Join(dir, "examples"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		from, to := filepath.Join("../../examples", name), filepath.Join(dir, "examples", name)
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("ROUX_DATA", "")
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	p := &pageRun{t: t}
	commands := 0
	blocks := pageBlock.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1)
	for i, b := range blocks {
		switch kind, text := b[1], b[2]; kind {
		case "yaml":
			first, rest, _ := strings.Cut(text, "\n")
			name, ok := strings.CutPrefix(first, "# ")
			if !ok || filepath.Ext(name) != ".yaml" {
				t.Fatalf("a file without a name:\n%s", text)
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(rest), 0o600)); err != nil {
				t.Fatal(err)
			}
		case "sh":
			var want, log []string
			if i+1 < len(blocks) {
				switch blocks[i+1][1] {
				case "text":
					want = shownLines(blocks[i+1][2])
				case "json":
					log = shownLines(blocks[i+1][2])
				}
			}
			p.run(shownLines(text), want, log)
			commands += len(shownLines(text))
		case "text", "json":
		default:
			t.Errorf("a block of %s, which nothing tests", kind)
		}
	}
	p.background.Wait()
	if commands < 5 {
		t.Errorf("%d commands on the page: it has lost some", commands)
	}
}

// shownLines returns the lines of a text with one space between words.
func shownLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// pageRun runs the commands of a page.
type pageRun struct {
	t          *testing.T
	background sync.WaitGroup
}

// run runs the commands of a block. The last one is repeated until its output has the
// wanted lines, if another command is under way in the background. log are lines that the
// last command writes to its log.
func (p *pageRun) run(commands, want, log []string) {
	p.t.Helper()
	under := false
	out := ""
	for i, line := range commands {
		if line == "wait" {
			p.background.Wait()
			continue
		}
		line, code, fails := strings.Cut(line, " # ends with ")
		line, behind := strings.CutSuffix(line, " &")
		args, _ := shellWords(line)
		if args[0] != "roux" {
			p.t.Fatalf("%q is no command of Roux", line)
		}
		if behind {
			under = true
			p.background.Go(func() {
				if _, talk, code := inProcess("", args[1:]...); code != 0 {
					p.t.Errorf("`%s` ends with %d: %s", line, code, talk)
				}
			})
			continue
		}
		before := out
		for deadline := time.Now().Add(30 * time.Second); ; {
			text, talk, got := inProcess("", args[1:]...)
			out = before + text
			missing := missingLine(out, want)
			if i < len(commands)-1 || missing == "" {
				if ok := got == 0; ok == fails && !strings.Contains(line, "--dry-run") || fails && strconv.Itoa(got) != code {
					p.t.Errorf("`%s` ends with %d: %s", line, got, talk)
				}
				if line := missingLine(talk, log); line != "" {
					p.t.Errorf("`%s` does not log %q but\n%s", commands[i], line, talk)
				}
				break
			}
			if !under || time.Now().After(deadline) {
				p.t.Errorf("`%s` does not show %q but, with exit code %d,\n%s%s", line, missing, got, text, talk)
				break
			}
		}
	}
}

// missingLine returns a wanted line that the output does not have, or "".
func missingLine(out string, want []string) string {
	have := "\n" + strings.Join(shownLines(out), "\n") + "\n"
	for _, line := range want {
		if want := strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"); !regexp.MustCompile("\n" + want + "\n").MatchString(have) {
			return line
		}
	}
	return ""
}
