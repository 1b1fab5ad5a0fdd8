// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

// readSource reads a recipe; "-" is standard input. name is its name in
// diagnostics. It refuses more than limit bytes without reading them all.
func readSource(path string, stdin io.Reader, limit int64) (text []byte, name string, err error) {
	in := stdin
	name = path
	if path == "-" {
		name = "stdin"
	} else {
		f, err := userfile.Open(path, fault.RecipeNotFound)
		if err != nil {
			return nil, "", err
		}
		defer f.Close()
		in = f
	}
	text, err = io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, "", fault.Wrap(fault.RecipeNotFound, err, "%s cannot be read: %v", name, err)
	}
	if kind := http.DetectContentType(text); !strings.HasPrefix(kind, "text/") && kind != "application/octet-stream" {
		return nil, "", fault.New(fault.RecipeInvalid,
			"%s is of the type %s, neither YAML nor JSON: a run is given such a file with `roux run RECIPE --file %s`", name, kind, term.ShellQuote(name))
	}
	if int64(len(text)) > limit {
		return nil, "", fault.New(fault.RecipeInvalid,
			"%s is larger than %s, the limit of a recipe: --max-source raises it up to 16MiB", name, view.Bytes(limit))
	}
	return text, name, nil
}

// inputs reads values of --input: name=value sets one field, @file sets those of a
// JSON or YAML object; later ones win. The inputSchema of the recipe decides
// whether a value is text. A value that it does not describe is JSON if it parses.
func inputs(args []string, schema json.RawMessage, stdin io.Reader) (map[string]any, error) {
	types := propertyTypes(schema)
	in := map[string]any{}
	for _, arg := range args {
		if path, ok := strings.CutPrefix(arg, "@"); ok {
			if err := inputObject(in, path, stdin); err != nil {
				return nil, err
			}
			continue
		}
		name, text, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fault.New(fault.Usage, "--input %s: want name=value or @file.json", arg)
		}
		v, err := inputValue(name, text, types[name])
		if err != nil {
			return nil, err
		}
		in[name] = v
	}
	return in, nil
}

// withDefaults returns an input with the defaults of the inputSchema, as a run begins with it.
func withDefaults(in map[string]any, schema json.RawMessage) (map[string]any, error) {
	if len(schema) == 0 {
		return in, nil
	}
	s, err := jsonschema.Compile(schema)
	if err != nil {
		return nil, err
	}
	v, _, err := s.WithDefaults(in, "fileHashes")
	m, _ := v.(map[string]any)
	return m, err
}

func inputObject(in map[string]any, path string, stdin io.Reader) error {
	text, name, err := readSource(path, stdin, maxSource)
	if err != nil {
		var e *fault.Error
		if errors.As(err, &e) && e.Code == fault.RecipeNotFound {
			e.Code = fault.FileNotFound
		}
		return err
	}
	if len(text) > jsonx.DefaultBytes {
		return fault.New(fault.InputInvalid, "--input @%s has %d bytes, the limit is %d: give the run a large list as a file, with --file", name, len(text), jsonx.DefaultBytes)
	}
	parse := jsonx.Parse
	if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
		parse = yamlx.Parse
	}
	node, problems := parse(text, jsonx.Limits{})
	if len(problems) > 0 {
		return fault.New(fault.InputInvalid, "--input @%s: %v", name, problems[0])
	}
	fields, ok := node.Value().(map[string]any)
	if !ok {
		return fault.New(fault.InputInvalid, "--input @%s: want an object of input fields, such as {\"language\": \"en\"}", name)
	}
	for k, v := range fields {
		in[k] = v
	}
	return nil
}

func inputValue(name, text string, types []string) (any, error) {
	if slices.Contains(types, "string") && !slices.Contains(types, "object") {
		return text, nil
	}
	v, err := jsonx.Decode([]byte(text), jsonx.Limits{})
	if err == nil {
		return v, nil
	}
	if len(types) == 0 {
		return text, nil
	}
	return nil, fault.New(fault.InputInvalid, "--input %s=%s: want %s, written as JSON", name, view.Cut(text, 40), strings.Join(types, " or "))
}

// propertyTypes returns the types of the properties of a schema.
func propertyTypes(schema json.RawMessage) map[string][]string {
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	// A schema of another form has no types; compile has already refused one that
	// is not valid.
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	types := map[string][]string{}
	for name, p := range s.Properties {
		switch t := p.Type.(type) {
		case string:
			types[name] = []string{t}
		case []any:
			for _, one := range t {
				if text, ok := one.(string); ok {
					types[name] = append(types[name], text)
				}
			}
		}
	}
	return types
}

// setLimits reads the limits among the values of --set; nil = there are none. rest are the
// others.
func setLimits(args []string) (limits *client.RunLimits, rest []string, err error) {
	var set client.RunLimits
	fields := map[string]*int64{
		"max_total_steps": &set.MaxTotalSteps, "max_loop_items": &set.MaxLoopItems, "memory_limit_mb": &set.MemoryLimitMB,
		"max_expression_cost": &set.MaxExpressionCost,
	}
	for _, arg := range args {
		assigned, ok := strings.CutPrefix(arg, "limits.")
		if !ok {
			rest = append(rest, arg)
			continue
		}
		name, value, _ := strings.Cut(assigned, "=")
		field := fields[name]
		if field == nil {
			return limits, nil, fault.New(fault.Usage, "--set %s: a retry can raise limits.max_expression_cost, limits.max_loop_items, limits.max_total_steps and limits.memory_limit_mb", view.OneLine(arg))
		}
		if *field, err = strconv.ParseInt(value, 10, 40); err != nil || *field < 1 {
			return limits, nil, fault.New(fault.Usage, "--set %s: want a whole number of at least 1", view.OneLine(arg))
		}
		limits = &set
	}
	return limits, rest, nil
}

// setFields reads values of --set of a retry: in.name=value, or name=value.
func setFields(args []string, schema json.RawMessage) (map[string]any, error) {
	plain := make([]string, len(args))
	for i, a := range args {
		plain[i] = strings.TrimPrefix(strings.TrimPrefix(a, "input."), "in.")
		if strings.HasPrefix(a, "@") || !strings.Contains(a, "=") {
			return nil, fault.New(fault.Usage, "--set %s: want in.name=value", a)
		}
	}
	return inputs(plain, schema, nil)
}
