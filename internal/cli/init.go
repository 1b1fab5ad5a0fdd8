// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/examples"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

//go:embed starter
var starter embed.FS

// schemaDir is the directory of the schemas of a project, where editors look.
const schemaDir = ".vscode"

// modeline names the schema of a recipe for editors.
const modeline = "# yaml-language-server: $schema=" + schemaDir + "/recipe.schema.json\n"

// A projectText is a file of a new project.
type projectText struct {
	name string
	text []byte
	ours bool // only Roux changes it
}

func (a *app) initCommand() *cobra.Command {
	var example string
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Begin a project: a recipe with tests, a file to run it on, settings and schemas",
		Long: "Begin a project in DIR, or in the working directory. Existing files are not changed: a second `roux init` reports them as unchanged, " +
			"and files you have changed are kept and named.",
		Example: `roux init my
roux init my-digest --example document-digest`,
		Args: wants(0, 1, "[DIR] [--example NAME]"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			files, run, err := project(example)
			if err != nil {
				return err
			}
			p, err := userfile.OpenDir(dir)
			if err != nil {
				return err
			}
			defer p.Close()
			var list []userfile.Result
			for _, f := range files {
				done, err := p.Offer(f.name, f.text, f.ours)
				if err != nil {
					return err
				}
				list = append(list, done)
			}
			a.showPlaced(list)
			if dir != "." {
				run = "cd " + term.ShellQuote(dir) + " && " + run
			}
			a.say("next: `%s`", view.OneLine(run))
			return nil
		},
	}
	cmd.Flags().StringVar(&example, "example", "", "begin with this example instead: "+strings.Join(exampleNames(), ", "))
	completeFlag(cmd, "example", exampleNames)
	return cmd
}

// project returns the files of a new project and the command to try first.
func project(example string) (files []projectText, run string, err error) {
	if example == "" {
		files, run, err = starterProject()
	} else {
		files, run, err = exampleProject(example)
	}
	if err != nil {
		return nil, "", err
	}
	for _, name := range []string{"roux.yaml", "gitignore"} {
		text, err := starter.ReadFile("starter/" + name)
		if err != nil {
			return nil, "", err
		}
		if name == "gitignore" {
			name = ".gitignore"
		}
		files = append(files, projectText{name: name, text: text})
	}
	files = append(files,
		projectText{schemaDir + "/recipe.schema.json", dialect.All()[0].Schema(), true},
		projectText{schemaDir + "/config.schema.json", config.Schema(), true})
	for _, k := range testKinds() {
		files = append(files, projectText{schemaDir + "/" + k.Kind + ".schema.json", k.text(), true})
	}
	return files, run, nil
}

func starterProject() (files []projectText, run string, err error) {
	recipeText, err := starter.ReadFile("starter/documents.yaml")
	if err != nil {
		return nil, "", err
	}
	tests, err := starter.ReadFile("starter/documents.test.yaml")
	if err != nil {
		return nil, "", err
	}
	page, err := starter.ReadFile("starter/README.md")
	if err != nil {
		return nil, "", err
	}
	report, err := examples.Read("report.pdf")
	if err != nil {
		return nil, "", err
	}
	return []projectText{
		{name: "documents.yaml", text: append([]byte(modeline), recipeText...)},
		{name: "documents.test.yaml", text: tests},
		{name: "files/report.pdf", text: report},
		{name: "README.md", text: page},
	}, "roux run documents.yaml --file 'files/*'", nil
}

func exampleProject(name string) (files []projectText, run string, err error) {
	e, ok := examples.Find(name)
	if !ok {
		if near := spell.Nearest(name, exampleNames()); near != "" {
			return nil, "", fault.New(fault.Usage, "--example %s: there is none of that name; did you mean %s?", view.OneLine(view.Cut(name, 60)), near)
		}
		return nil, "", fault.New(fault.Usage, "--example %s: there is none of that name; there are: %s", view.OneLine(view.Cut(name, 60)), strings.Join(exampleNames(), ", "))
	}
	text, err := examples.Read(e.Recipe)
	if err != nil {
		return nil, "", err
	}
	here := func(s string) string { return strings.ReplaceAll(s, "examples/", "") }
	own := here(string(text))
	if !strings.HasPrefix(own, "# yaml-language-server:") {
		own = modeline + own
	}
	files = append(files, projectText{name: e.Recipe, text: []byte(own)})
	for _, f := range e.Files {
		data, err := examples.Read(f)
		if err != nil {
			return nil, "", err
		}
		files = append(files, projectText{name: path.Clean(f), text: data})
	}
	page, err := starter.ReadFile("starter/example.md")
	if err != nil {
		return nil, "", err
	}
	run = here(e.Command)
	readme := strings.NewReplacer("NAME", e.Name, "TITLE", e.Title, "RECIPE", e.Recipe, "COMMAND", run).Replace(string(page))
	return append(files, projectText{name: "README.md", text: []byte(readme)}), run, nil
}

func exampleNames() (names []string) {
	for _, e := range examples.All() {
		names = append(names, e.Name)
	}
	return names
}

// showPlaced prints what happened to each file.
func (a *app) showPlaced(list []userfile.Result) {
	a.show(list, func() {
		for _, p := range list {
			line := fmt.Sprintf("%-9s  %s", p.Done, view.OneLine(p.File))
			if p.Why != "" {
				line += ": " + p.Why
			}
			a.text("%s\n", line)
		}
	})
}
