// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/userfile"
)

// Nesting says how recipes may name others, and how much of that one run may do.
type Nesting struct {
	// Limits has the maximum depth and the maximum number of steps, where a setting has one.
	Limits compile.Limits
	// NoRegistry refuses steps that name registered recipes.
	NoRegistry bool
	// Dirs are the directories whose files may be named; nil = those below the recipe. Project
	// is the directory that paths may also begin at.
	Dirs    []string
	Project string
	// Workspaces is the directory of the workspaces of child runs; "" = one in the data directory.
	Workspaces string
	// Refresh is how long what was fetched counts as fresh.
	Refresh time.Duration
}

// Nesting returns the settings of recipes in recipes. c may be nil.
func (c *Config) Nesting() Nesting {
	if c == nil { // no settings were read
		return Nesting{}
	}
	n := Nesting{
		NoRegistry: c.Get("enable_pipeline_registry").Value == "false",
		Workspaces: c.set("nested_workspace_root"),
		Refresh:    time.Duration(c.Number("pipeline_cache_ttl")) * time.Second,
	}
	// What the operator sets is the default and the maximum, as the names say. Without a
	// setting a recipe may raise its own limit.
	if v := c.Get("max_nesting_depth"); v.Origin != "default" {
		n.Limits.Default.ChildDepth = int64(c.Number("max_nesting_depth"))
		n.Limits.Max.ChildDepth = n.Limits.Default.ChildDepth
	}
	if v := c.Get("max_total_steps"); v.Origin != "default" {
		n.Limits.Default.TotalSteps = int64(c.Number("max_total_steps"))
		n.Limits.Max.TotalSteps = n.Limits.Default.TotalSteps
	}
	if v := c.Get("allowed_pipeline_dirs"); v.Origin != "default" {
		n.Project = "."
		for i := range c.files {
			if f := &c.files[i]; f.kind == v.Origin {
				n.Project = f.dir
			}
		}
		for dir := range strings.SplitSeq(v.Value, ",") {
			n.Dirs = append(n.Dirs, userfile.Relative(filepath.Clean(strings.TrimSpace(dir))))
		}
	}
	return n
}

// set returns the value of a setting, or "" if nothing sets it.
func (c *Config) set(key string) string {
	v := c.Get(key)
	if v.Origin == "default" {
		return ""
	}
	return v.Value
}

// checkDirs accepts a list of directories.
func checkDirs(text string) error {
	for dir := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(dir) == "" {
			return errors.New("want the names of directories, none of them empty")
		}
	}
	return nil
}

// checkDirsOf refuses a directory outside of the project in home, which its file names. It
// follows links.
func checkDirsOf(home, text string) error {
	for dir := range strings.SplitSeq(text, ",") {
		if !within(home, strings.TrimSpace(dir)) {
			return fmt.Errorf("%s is outside of the project, whose files must not open it", dir)
		}
	}
	return nil
}

// trueOrFalse are the values of a switch.
var trueOrFalse = []string{"true", "false"}
