// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// lookEvery is how often the files of a folder are looked at.
const lookEvery = 300 * time.Millisecond

func (a *app) devCommand() *cobra.Command {
	s := &serve{app: a, open: true, limit: defaultSource}
	cmd := &cobra.Command{
		Use:   "dev [DIR]",
		Short: "Serve the recipes of a folder, and register them again when they are saved",
		Long: "Serve the recipes in DIR, or in the working directory, over HTTP as `roux serve --no-keys` does, and register each again when its file is saved. " +
			"Problems are shown as `roux validate` shows them; until they are mended, the last valid version goes on. " +
			"A version that has run never changes: a changed text is then registered under the next patch version, and the name stands for that one. " +
			"Versions that no file has any more are deprecated. When a file is saved, the tests in DIR are run, as `roux test` runs them. Lenses in DIR, and in its directory lenses, are put as versions when they are saved.",
		Example: `roux dev
roux dev recipes --listen 127.0.0.1:0`,
		Args: wants(0, 1, "[DIR]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.folder = "."
			if len(args) == 1 {
				s.folder = args[0]
			}
			return s.run(cmd.Context())
		},
	}
	s.flags(cmd)
	return cmd
}

// A devFolder is the folder of a server, and what was said of it.
type devFolder struct {
	*app
	serve  *serve
	folder *registry.Folder
	failed string // why it could not be read at the last look
	tests  devTests
}

// openFolder registers the recipes of the folder for the first time, and puts them into out.
func (s *serve) openFolder(ctx context.Context, srv *service.Service, out *served) (*devFolder, error) {
	d := &devFolder{app: s.app, serve: s, folder: registry.NewFolder(registry.FolderConfig{
		Recipes: srv.Recipes(), Account: s.account, Dir: s.folder, Ignore: []string{config.ProjectFile}, MaxSource: s.limit, Now: s.now,
		By: s.served.by(), Shown: s.served.shown(), Admit: s.served.admit(s.app),
	})}
	if s.served.name == "" { // what a server gets from elsewhere is not tried out
		d.tests = devTests{app: s.app, dir: s.folder, limit: s.limit}
	}
	changes, err := d.folder.Look(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if c.Problems != "" {
			d.tell(c)
		}
		if c.Version == nil {
			continue
		}
		out.Recipes = append(out.Recipes, devRecipe{c.File, c.Version.Name, c.Version.Version})
		if out.Try == "" && s.open && c.Version.Status != registry.StatusDraft {
			if known, err := srv.Recipes().Resolve(ctx, s.account, c.Version.Name); err == nil {
				out.Try = tryLine(out.URL, c.Version.Name, known.Recipe.InputSchema)
			}
		}
	}
	if len(out.Recipes) == 0 {
		s.say("there is no valid recipe in %s yet: one that is saved there is registered", view.OneLine(cmp.Or(s.served.shown(), s.folder)))
	}
	return d, nil
}

// follow looks at the folder until ctx ends.
func (d *devFolder) follow(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if d.serve.refresh(ctx, d.folder) {
				d.look(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// look registers what was saved, and tells what came of it.
func (d *devFolder) look(ctx context.Context) {
	changes, err := d.folder.Look(ctx)
	for _, c := range changes {
		d.tell(c)
	}
	failed := ""
	if err != nil && ctx.Err() == nil {
		failed = view.OneLine(fault.Message(err))
	}
	if failed != d.failed && failed != "" {
		d.screen.Print(d.screen.Paint("error", "error:") + " " + failed + "\n")
	}
	d.failed = failed
	if d.tests.app != nil {
		d.tests.look(ctx)
	}
}

// tell says what came of a file.
func (d *devFolder) tell(c registry.FolderChange) {
	d.screen.Print(c.Problems)
	file, version := view.OneLine(c.File), "no version of it is registered"
	if c.Version != nil {
		version = view.OneLine(c.Version.Name) + "@" + c.Version.Version
	}
	switch {
	case c.Change == registry.FolderBroken && c.Version != nil:
		d.log.Warn("a recipe is broken", "file", file, "recipe", c.Version.Name, "version", c.Version.Version)
		d.say("%s: invalid; %s goes on", file, version)
	case c.Lens != nil:
		d.say("%s: the lens %s is %s", file, c.Lens.Lens+"@"+c.Lens.Version, c.Change)
	case c.Change == registry.FolderBroken:
		d.say("%s: invalid; %s", file, version)
	case c.Change == registry.FolderRemoved && c.Version != nil:
		d.say("%s: removed; %s is deprecated", file, version)
	case c.Change == registry.FolderRemoved:
		d.say("%s: removed", file)
	default:
		note := ""
		if c.Version.Version != c.Stated {
			note = ", because another text is " + c.Stated + " already"
		}
		if c.Newest != "" {
			note += "; the name alone stands for " + c.Newest
		}
		d.say("%s: %s %s%s", file, c.Change, version, note)
	}
}

// tryLine is a command that executes a recipe, with input that its schema asks for.
func tryLine(base, name string, schema json.RawMessage) string {
	body, err := json.Marshal(map[string]any{"parameters": requiredInput(schema), "async": false})
	if err != nil {
		return "" // a value that was decoded from JSON is encoded
	}
	return fmt.Sprintf("curl -s -X POST %s -H 'Content-Type: application/json' -d %s", term.ShellQuote(base+"/v1/recipes/"+url.PathEscape(name)+"/execute"), term.ShellQuote(string(body)))
}

// requiredInput returns an input with the properties that a schema requires: what it names as
// a default or an example, or the empty value of the type.
func requiredInput(schema json.RawMessage) map[string]any {
	var s struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Default  any   `json:"default"`
			Examples []any `json:"examples"`
			Enum     []any `json:"enum"`
			Minimum  any   `json:"minimum"`
		} `json:"properties"`
	}
	in := map[string]any{}
	if json.Unmarshal(schema, &s) != nil {
		return in // as for propertyTypes
	}
	types := propertyTypes(schema)
	for _, name := range s.Required {
		p := s.Properties[name]
		switch {
		case p.Default != nil:
			in[name] = p.Default
		case len(p.Examples) > 0:
			in[name] = p.Examples[0]
		case len(p.Enum) > 0:
			in[name] = p.Enum[0]
		default:
			in[name] = emptyValue(types[name], p.Minimum)
		}
	}
	return in
}

// emptyValue returns a value of the first of some types of JSON Schema.
func emptyValue(types []string, minimum any) any {
	if len(types) == 0 {
		return "…"
	}
	switch types[0] {
	case "integer", "number":
		if minimum != nil {
			return minimum
		}
		return 1
	case "boolean":
		return true
	case "array":
		return []any{}
	case "object":
		return map[string]any{}
	case "null":
		return nil
	}
	return "…"
}
