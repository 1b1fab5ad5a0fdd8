// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A schemaKind is a kind of file that has a JSON Schema.
type schemaKind struct {
	Kind  string   `json:"kind"`
	What  string   `json:"what"`
	Files []string `json:"files"` // the files that an editor checks against it
	text  func() []byte
}

func schemaKinds() []schemaKind {
	var kinds []schemaKind
	for _, l := range dialect.All() {
		kinds = append(kinds, schemaKind{l.Name, l.What, []string{"*." + l.Name + ".yaml", "*." + l.Name + ".yml", "*." + l.Name + ".json"}, l.Schema})
	}
	kinds = append(kinds, testKinds()...)
	return append(kinds, schemaKind{"config", "settings: roux.yaml of a project, config.yaml of a user", []string{config.ProjectFile}, config.Schema})
}

func kindNames() (names []string) {
	for _, k := range schemaKinds() {
		names = append(names, k.Kind)
	}
	return names
}

func (a *app) schemaCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of a kind of file, or list the kinds",
		Long: "Print the JSON Schema of a kind of file, or list the kinds. With --write DIR the schemas become files in DIR, and DIR/settings.json " +
			"tells VS Code which files they are for; its other settings stay as they are.",
		Example: `roux schema recipe
roux schema --write .vscode`,
		Args: wants(0, 1, "[KIND] [--write DIR]"), ValidArgs: kindNames(),
		RunE: func(_ *cobra.Command, args []string) error {
			kinds := schemaKinds()
			if len(args) == 1 {
				i := slices.IndexFunc(kinds, func(k schemaKind) bool { return k.Kind == args[0] })
				if i < 0 {
					return unknownKind(args[0])
				}
				kinds = kinds[i : i+1]
			}
			switch {
			case dir != "":
				return a.writeSchemas(dir, kinds)
			case len(args) == 1:
				a.printSchema(kinds[0].text())
			default:
				a.show(kinds, func() {
					rows := [][]string{{"KIND", "WHAT", "FILES"}}
					for _, k := range kinds {
						rows = append(rows, []string{k.Kind, k.What, strings.Join(k.Files, " ")})
					}
					a.text("%s", term.Table(rows))
				})
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "write", "", "write the schemas, and which files they are for, into this directory")
	return cmd
}

func unknownKind(kind string) error {
	if near := spell.Nearest(kind, kindNames()); near != "" {
		return fault.New(fault.Usage, "there is no schema of %q; did you mean `roux schema %s`?", view.OneLine(view.Cut(kind, 60)), near)
	}
	return fault.New(fault.Usage, "there is no schema of %q; there are: %s", view.OneLine(view.Cut(kind, 60)), strings.Join(kindNames(), ", "))
}

// printSchema prints a schema. In table form it is JSON, too.
func (a *app) printSchema(text []byte) {
	a.show(json.RawMessage(text), func() { a.text("%s\n", bytes.TrimSpace(text)) })
}

// writeSchemas writes schemas and adds them to the settings of VS Code.
func (a *app) writeSchemas(dir string, kinds []schemaKind) error {
	p, err := userfile.OpenDir(dir)
	if err != nil {
		return err
	}
	defer p.Close()
	var list []userfile.Result
	for _, k := range kinds {
		done, err := p.Offer(k.Kind+".schema.json", k.text(), true)
		if err != nil {
			return err
		}
		list = append(list, done)
	}
	done, err := mergeSettings(p, kinds)
	if err != nil {
		return err
	}
	a.showPlaced(append(list, done))
	return nil
}

const editorSettings = "settings.json"

// mergeSettings adds the files of each schema to settings.json. A settings.json
// with comments, which editors allow, is left alone.
func mergeSettings(p *userfile.Dir, kinds []schemaKind) (userfile.Result, error) {
	old, there, err := p.Read(editorSettings)
	if err != nil {
		return userfile.Result{}, err
	}
	doc := &jsonx.Node{Kind: jsonx.Object}
	if there && len(bytes.TrimSpace(old)) > 0 {
		var problems []*jsonx.Error
		if doc, problems = jsonx.Parse(old, jsonx.Limits{}); len(problems) > 0 || doc.Kind != jsonx.Object {
			return kept(p, "it holds more than plain JSON; add to \"yaml.schemas\" yourself: "+schemaLines(p.Path, kinds)), nil
		}
	}
	schemas := doc.Child("yaml.schemas")
	if schemas == nil {
		schemas = &jsonx.Node{Kind: jsonx.Object, Key: "yaml.schemas"}
		doc.Children = append(doc.Children, schemas)
	}
	if schemas.Kind != jsonx.Object {
		return kept(p, "its \"yaml.schemas\" is no object"), nil
	}
	changed := false
	for _, k := range kinds {
		key, want := schemaPath(p.Path, k), jsonList(k.Files)
		entry := schemas.Child(key)
		if entry != nil {
			continue // the user may have chosen other files
		}
		want.Key = key
		schemas.Children = append(schemas.Children, want)
		changed = true
	}
	if !changed {
		return userfile.Result{File: p.Name(editorSettings), Done: userfile.Unchanged}, nil
	}
	if err := p.Write(editorSettings, yamlx.EncodeJSON(doc)); err != nil {
		return userfile.Result{}, err
	}
	if there {
		return userfile.Result{File: p.Name(editorSettings), Done: userfile.Updated}, nil
	}
	return userfile.Result{File: p.Name(editorSettings), Done: userfile.Written}, nil
}

func kept(p *userfile.Dir, why string) userfile.Result {
	return userfile.Result{File: p.Name(editorSettings), Done: userfile.Kept, Why: why}
}

// schemaPath returns the path of a schema relative to the folder above .vscode,
// which the editor has open.
func schemaPath(dir string, k schemaKind) string {
	return "./" + path.Join(path.Base(path.Clean(filepath.ToSlash(dir))), k.Kind+".schema.json")
}

func schemaLines(dir string, kinds []schemaKind) string {
	var parts []string
	for _, k := range kinds {
		parts = append(parts, schemaPath(dir, k)+" for "+strings.Join(k.Files, " "))
	}
	return strings.Join(parts, "; ")
}

func jsonList(texts []string) *jsonx.Node {
	list := &jsonx.Node{Kind: jsonx.Array}
	for _, s := range texts {
		list.Children = append(list.Children, &jsonx.Node{Kind: jsonx.String, Text: s})
	}
	return list
}
