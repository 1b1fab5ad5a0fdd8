// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
)

var (
	inlineCommand = regexp.MustCompile("`(roux [^`\n]+)`")
	headCommand   = regexp.MustCompile(`(?m)^#.*?\b(roux run .+)$`)
	hereDocument  = regexp.MustCompile(`(?ms)<<'EOF'\n.*?^EOF$`)
)

// A shown command is one that a page, a help text or a remedy tells people to type.
type shown struct {
	where, line string
	whole       bool // to be pasted unchanged; other lines may contain placeholders and alternatives
}

// shownCommands are all commands of the pages, the examples, the help and the table
// of errors.
func shownCommands(t *testing.T, root *cobra.Command) (commands []shown) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && len(d.Name()) > 2 && strings.HasPrefix(d.Name(), ".") {
			return cmpErr(err, fs.SkipDir)
		}
		yaml := filepath.Ext(path) == ".yaml" && strings.Contains(filepath.ToSlash(path), "/examples/")
		if !yaml && filepath.Ext(path) != ".md" || strings.Contains(path, "decisions") || filepath.Base(path) == "CHANGELOG.md" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(content), "\r\n", "\n")
		if yaml {
			for _, m := range headCommand.FindAllStringSubmatch(text, -1) {
				commands = append(commands, shown{path, m[1], true})
			}
			return nil
		}
		for _, b := range shellBlock.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(hereDocument.ReplaceAllString(b[1], "")) {
				commands = append(commands, shown{path, strings.TrimSpace(line), true})
			}
		}
		for _, m := range inlineCommand.FindAllStringSubmatch(shellBlock.ReplaceAllString(text, ""), -1) {
			commands = append(commands, shown{path, m[1], false})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range fault.All() {
		for _, m := range inlineCommand.FindAllStringSubmatch(row.Remedy, -1) {
			commands = append(commands, shown{string(row.Code), m[1], false})
		}
	}
	for _, c := range append(descendants(root), root) {
		for line := range strings.Lines(c.Example) {
			commands = append(commands, shown{c.CommandPath() + ", examples", strings.TrimSpace(line), true})
		}
		for _, m := range inlineCommand.FindAllStringSubmatch(c.Long, -1) {
			commands = append(commands, shown{c.CommandPath() + ", long help", m[1], false})
		}
	}
	return commands
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func descendants(c *cobra.Command) (all []*cobra.Command) {
	for _, sub := range c.Commands() {
		all = append(append(all, sub), descendants(sub)...)
	}
	return all
}

// shellWords splits a line as a shell does. special collects the characters outside
// quotes that have a special meaning in some shell. Not counted are && and | and <, >
// and 2> between words, and a # that begins a comment.
func shellWords(line string) (words []string, special string) {
	word, quote, in := "", byte(0), false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word += string(c)
			}
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ':
			if in {
				words, word, in = append(words, word), "", false
			}
		case c == '#' && !in:
			return words, special
		default:
			if strings.IndexByte("?*[]{}()&;!~\\^$`", c) >= 0 || in && strings.IndexByte("|<>", c) >= 0 && (c != '>' || word != "2") {
				special += string(c)
			}
			word, in = word+string(c), true
		}
	}
	if in {
		words = append(words, word)
	}
	return words, special
}

// TestShownCommands checks that each command in a page, a help text or an error exists
// with its flags, and that commands to be pasted are quoted for every shell: zsh
// refuses a ? that matches no file, and & ends the command.
func TestShownCommands(t *testing.T) {
	root := (&app{getenv: func(string) string { return "" }}).command()
	root.InitDefaultHelpFlag()
	commands := shownCommands(t, root)
	if len(commands) < 150 {
		t.Errorf("found %d commands only", len(commands))
	}
	for _, s := range commands {
		line := s.line
		if s.whole {
			line = strings.ReplaceAll(strings.TrimSuffix(line, " &"), "&& ", "| ")
			line = strings.ReplaceAll(line, "|| ", "| ")
			if strings.HasPrefix(line, "until ") {
				line = strings.ReplaceAll(strings.TrimSuffix(line, "; done"), "; do ", " | ")
			}
			// The shell is meant to expand these patterns.
			line = strings.ReplaceAll(line, `recipes/*.yaml`, "recipes/a.yaml")
			line = strings.ReplaceAll(line, `scans/*.jpg`, "scans/a.jpg")
			line = strings.ReplaceAll(line, `definitions/*`, "definitions/a.json")
		}
		words, special := shellWords(line)
		switch { // pages for a POSIX shell, which wait for what they have started, or read what was shown
		case strings.HasSuffix(s.where, "docs/workers.md"), strings.HasSuffix(s.where, "docs/jobs.md"), strings.HasSuffix(s.where, "docs/limits.md"), strings.HasSuffix(s.where, "docs/moderation.md"), strings.HasSuffix(s.where, "docs/registry.md"):
			special = strings.Trim(special, "$!?&()")
		case strings.HasSuffix(s.where, "docs/approvals.md"):
			special = strings.Trim(special, "$()")
		}
		if s.whole && special != "" {
			t.Errorf("%s: %s\nhas %q outside quotes", s.where, s.line, special)
		}
		for i, w := range words {
			if w == "roux" || w == "./roux" || w == "./cmd/roux" && i == 2 {
				checkCommand(t, root, s, words[i+1:])
			}
		}
	}
}

// checkCommand reports a command or flag that does not exist.
func checkCommand(t *testing.T, root *cobra.Command, s shown, words []string) {
	t.Helper()
	for i, w := range words {
		if strings.ContainsAny(w, "|<>") {
			words = words[:i]
			break
		}
	}
	cmd, rest, err := root.Find(words)
	if err == nil && cmd.HasSubCommands() && cmd != root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		err = fmt.Errorf("%s has no command %s", cmd.CommandPath(), rest[0])
	}
	if err != nil {
		t.Errorf("%s: `%s`: %v", s.where, s.line, err)
		return
	}
	cmd.InitDefaultHelpFlag()
	for i, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		name, value, assigned := strings.Cut(name, "=")
		if !isFlag || name == "" {
			continue
		}
		if cmd.Flag(name) == nil {
			t.Errorf("%s: `%s`: %s has no flag --%s", s.where, s.line, cmd.CommandPath(), name)
		}
		if !assigned && i+1 < len(words) {
			value = words[i+1]
		}
		if name == "data" && strings.ContainsAny(value, "{}") {
			t.Errorf("%s: `%s`: --data is the data directory, not %s", s.where, s.line, value)
		}
	}
}
