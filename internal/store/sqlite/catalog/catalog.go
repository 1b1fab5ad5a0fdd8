// SPDX-License-Identifier: Apache-2.0

// Package catalog reads statements of SQL from files and finds them by name.
//
// A text follows a line "-- name: x" and ends before the next one, with a semicolon.
// Other comment lines are left out. In a text, {x} stands for the text x.
package catalog

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// Texts are the texts of files, by name. A store takes every text that it uses once, when
// it opens; nothing is looked up by name later.
type Texts struct {
	texts map[string]string
	taken map[string]bool
	err   error
}

// Load reads the files sql/*.sql.
func Load(files fs.FS) (*Texts, error) {
	c := &Texts{texts: map[string]string{}, taken: map[string]bool{}}
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err == nil {
			err = c.parse(string(data))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// parse adds the texts of a file.
func (c *Texts) parse(data string) error {
	name := ""
	var lines []string
	end := func() error {
		if name == "" {
			return nil
		}
		text, whole := strings.CutSuffix(strings.Join(lines, "\n"), ";")
		if !whole || strings.Contains(text, ";") {
			return fmt.Errorf("%s: want one text that ends with a semicolon", name)
		}
		if _, again := c.texts[name]; again {
			return fmt.Errorf("%s: the name is used twice", name)
		}
		c.texts[name] = text
		return nil
	}
	for line := range strings.Lines(data) {
		line = strings.TrimRight(line, "\r\n")
		next, isName := strings.CutPrefix(line, "-- name: ")
		switch {
		case isName:
			if err := end(); err != nil {
				return err
			}
			name, lines = next, nil
		case line == "" || strings.HasPrefix(line, "--"):
		case name == "":
			return fmt.Errorf("%q comes before the first name", line)
		default:
			lines = append(lines, line)
		}
	}
	return end()
}

// Text returns the text of a name with its fragments in place.
func (c *Texts) Text(name string) string {
	text, ok := c.texts[name]
	if !ok {
		if c.err == nil {
			c.err = fmt.Errorf("no SQL text is named %q", name)
		}
		return ""
	}
	c.taken[name] = true
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		fragment, after, _ := strings.Cut(rest, "}")
		out.WriteString(c.Text(fragment))
		text = after
	}
}

// Err returns the error of the first name that was asked for and is in no file.
func (c *Texts) Err() error { return c.err }

// Unused returns the names, sorted, that were not asked for.
func (c *Texts) Unused() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.texts)), func(name string) bool { return c.taken[name] })
}
