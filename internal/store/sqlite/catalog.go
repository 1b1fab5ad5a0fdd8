// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// A catalog has the texts of sql/*.sql by name. Opening a store reads the files and
// takes every text out of its catalog once; nothing is looked up by name later.
//
// A text follows a line "-- name: x" and ends before the next one, with a semicolon.
// Other comment lines are left out. In a text, {x} stands for the text x. What depends
// on a query or on a number of runs is composed in Go out of these texts, by
// [Store.List] and [Store.lookUp]. Only pragmas and names of tables, to which nothing
// can be bound, stand in Go.
type catalog struct {
	texts map[string]string
	taken map[string]bool
	err   error // of the first name that was asked for and is in no file
}

func loadCatalog(files fs.FS) (*catalog, error) {
	c := &catalog{texts: map[string]string{}, taken: map[string]bool{}}
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
func (c *catalog) parse(data string) error {
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

// text returns the text of a name with its fragments in place.
func (c *catalog) text(name string) string {
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
		out.WriteString(c.text(fragment))
		text = after
	}
}
