// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

const (
	maxSegments = 100
	maxMatches  = 100_000 // listed inline
)

// jsonPath returns the action json-path, which reads a part of JSON that is too
// large for an expression.
func jsonPath() action.Action {
	return action.Action{
		Name:        "json-path",
		Version:     "1.0.0",
		Description: "Takes a part out of a JSON value or file, however large, by a JSON Pointer or a path such as orders[0].items[*].price.",
		Cost:        1,
		Input: schema(`{
			"type": "object",
			"properties": {
				"value": {"description": "The JSON value itself."},
				"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of a file with one JSON text. It is streamed: only the part that is asked for is held. A step that is given no value gets the run's only file."},
				"path": {"type": "string", "maxLength": 2000, "description": "A JSON Pointer (RFC 6901) when it is empty or begins with /, such as /orders/0/id. Else names with dots between them, [3] for a place in a list, [*] for every element or member, [\"a.b\"] for a name with a dot; a leading $ may stand. The empty path is the whole value."},
				"default": {"description": "The value when the path leads nowhere. Without it that is an error."},
				` + outputProp + `
			},
			"required": ["path"],
			` + exactlyOne + `: ["value", "file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"value": {"description": "What stands there; with [*] the list of all that was found. Missing with output: file."},
				"file": {"type": "string", "format": "file", "description": "With output: file. The value as JSON; with [*] one a line."},
				` + fileNameProp + `,
				"found": {"type": "boolean", "description": "Whether the path leads anywhere."},
				"count": {"type": "integer", "minimum": 0, "description": "How many values were found."}
			},
			"required": ["found", "count"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("document", "A JSON value or file.", "application/json"),
			OutputTypes: types("part", "The part that was asked for.", "application/json", typeJSONLines),
			BranchConditions: []action.BranchCondition{
				condition("is-found", `output.found`, "The path leads somewhere."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "2m"},
		},
		Limits: []string{"Files of any size that the store takes; they are streamed and checked to their end.", "Parts of 32 MiB and 1,000,000 values, nested 60 deep, in documents nested 512 deep.", "100,000 matches of [*] inline.", "1,000,000 names an object."},
		Faults: []fault.Code{fault.InputInvalid, fault.FileNotFound, fault.FileInvalid, fault.FileUnsupported, fault.FileTooLarge, fault.OutputTooLarge},
		Examples: []action.Example{
			example("One value by its JSON Pointer.", map[string]any{"value": map[string]any{"orders": []any{map[string]any{"id": 7}}}, "path": "/orders/0/id"}),
			example("A value of every element.", map[string]any{"value": []any{map[string]any{"price": 3}, map[string]any{"price": 4}}, "path": "[*].price"}),
			example("A value that may be missing in a large file.", map[string]any{"file": "file", "path": "meta.author", "default": "unknown"}),
		},
		Run: runJSONPath,
	}
}

func runJSONPath(ctx context.Context, task *action.Task) (action.Result, error) {
	var in struct {
		Value   json.RawMessage `json:"value"`
		File    string          `json:"file"`
		Path    string          `json:"path"`
		Default json.RawMessage `json:"default"`
		target
	}
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	if err := checkOneSource("value", in.Value != nil, in.File); err != nil {
		return action.Result{}, err
	}
	path, err := parsePath(in.Path)
	if err != nil {
		return action.Result{}, err
	}
	var r io.Reader = bytes.NewReader(in.Value)
	name := ""
	if in.File != "" {
		s, err := openText(ctx, task, in.File)
		if err != nil {
			return action.Result{}, err
		}
		defer func() { _ = s.Close() }()
		r, name = &progressReader{r: s, size: s.size, reporter: report(task), text: "searching"}, s.name
	}
	p := &pathReader{s: jsonx.NewStream(r, jsonx.StreamLimits{Value: jsonx.Limits{Depth: 60}}), many: slices.ContainsFunc(path, pathSegment.every)}
	if in.Output == "file" {
		return p.toFile(ctx, task, path, in.target, stem(name, "part"), in.Default)
	}
	list := []any{}
	err = p.run(path, func(v any) error {
		if p.size > maxResultInMemory || len(list) == maxMatches {
			return fault.New(fault.OutputTooLarge, `there are more than %d matches, or matches of more than %d MiB: ask for "output": "file"`, maxMatches, maxResultInMemory>>20)
		}
		list = append(list, v)
		return nil
	}, in.Default)
	if err != nil {
		return action.Result{}, err
	}
	out := map[string]any{"found": p.count > 0, "count": p.count, "value": any(list)}
	if !p.many {
		out["value"] = in.Default
		if p.count > 0 {
			out["value"] = list[0]
		}
	}
	return action.Result{Output: out}, nil
}

// toFile writes the matches as JSON, one value per line.
func (p *pathReader) toFile(ctx context.Context, task *action.Task, path []pathSegment, to target, name string, fallback json.RawMessage) (action.Result, error) {
	name, mimeType := name+".json", "application/json"
	if p.many {
		name, mimeType = strings.TrimSuffix(name, ".json")+".jsonl", typeJSONLines
	}
	info, err := storeOutput(ctx, task, to.fileName(name), mimeType, func(w *bufio.Writer) error {
		var line []byte
		err := p.run(path, func(v any) (err error) {
			if line, err = jsonx.AppendCanonical(line[:0], v); err != nil {
				return fault.Wrap(fault.FileInvalid, err, "%v", err)
			}
			_, err = w.Write(append(line, '\n'))
			return err
		}, fallback)
		if err == nil && p.count == 0 && !p.many {
			_, err = w.Write(append(bytes.Clone(fallback), '\n'))
		}
		return err
	})
	if err != nil {
		return action.Result{}, err
	}
	return action.Result{Output: map[string]any{"found": p.count > 0, "count": p.count, "file": info.Hash, "name": info.Name}}, nil
}

// A pathSegment is one step of a path.
type pathSegment struct {
	name  string
	index int64 // -1 = not an element of a list
	named bool  // it may name a member
	all   bool
}

func (s pathSegment) every() bool { return s.all }

// parsePath reads a JSON Pointer, or names with dots and brackets.
func parsePath(text string) ([]pathSegment, error) {
	if text == "" || text[0] == '/' {
		return parsePointer(text)
	}
	bad := func(at int, want string) error {
		return fault.New(fault.InputInvalid, "the path %.80q is not understood at %.20q: %s", text, text[at:], want)
	}
	var path []pathSegment
	at := 0
	if text[0] == '$' && (len(text) == 1 || text[1] == '.' || text[1] == '[') {
		at = 1
	}
	for first := at == 0; at < len(text); first = false {
		if len(path) == maxSegments {
			return nil, fault.New(fault.InputInvalid, "the path has more than %d parts", maxSegments)
		}
		switch {
		case text[at] == '[':
			seg, next, want := bracket(text, at)
			if want != "" {
				return nil, bad(at, want)
			}
			path, at = append(path, seg), next
		case text[at] == '.' || first:
			if !first {
				at++
			}
			end := at + len(text[at:])
			if i := strings.IndexAny(text[at:], ".["); i >= 0 {
				end = at + i
			}
			name := text[at:end]
			if name == "" {
				return nil, bad(at, "want a name after the dot")
			}
			path, at = append(path, pathSegment{name: name, index: -1, named: name != "*", all: name == "*"}), end
		default:
			return nil, bad(at, "want a dot or a bracket")
		}
	}
	return path, nil
}

// bracket reads [3], [*] or ["name"].
func bracket(text string, at int) (seg pathSegment, next int, want string) {
	inner := text[at+1:]
	if strings.HasPrefix(inner, `"`) || strings.HasPrefix(inner, "'") {
		// A name in double quotes is a JSON string; one in single quotes is literal.
		end := strings.Index(inner[1:], inner[:1]+"]")
		if end < 0 {
			return seg, 0, "the bracket is not closed: want [\"name\"]"
		}
		name := inner[1 : 1+end]
		if inner[0] == '"' && json.Unmarshal([]byte(inner[:end+2]), &name) != nil {
			return seg, 0, "the name is no JSON string"
		}
		return pathSegment{name: name, index: -1, named: true}, at + 1 + end + 3, ""
	}
	end := strings.IndexByte(inner, ']')
	if end < 0 {
		return seg, 0, "the bracket is not closed: want [3], [*] or [\"name\"]"
	}
	next = at + 1 + end + 1
	if inner[:end] == "*" {
		return pathSegment{index: -1, all: true}, next, ""
	}
	n, ok := elementIndex(inner[:end])
	if !ok {
		return seg, 0, "want [3], [*] or [\"name\"]: filters, slices and places counted from the end are not part of this language"
	}
	return pathSegment{index: n}, next, ""
}

// elementIndex reads the index of an element: digits without leading zeros.
func elementIndex(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}

func parsePointer(text string) ([]pathSegment, error) {
	if text == "" {
		return nil, nil
	}
	tokens := strings.Split(text[1:], "/")
	if len(tokens) > maxSegments {
		return nil, fault.New(fault.InputInvalid, "the path has more than %d parts", maxSegments)
	}
	path := make([]pathSegment, len(tokens))
	for i, tok := range tokens {
		if rest := strings.ReplaceAll(strings.ReplaceAll(tok, "~0", ""), "~1", ""); strings.Contains(rest, "~") {
			return nil, fault.New(fault.InputInvalid, "the JSON Pointer %.80q has a ~ that neither 0 nor 1 follows: write ~0 for ~ and ~1 for /", text)
		}
		path[i] = pathSegment{name: jsonx.UnescapeToken(tok), index: -1, named: true}
		if n, ok := elementIndex(tok); ok {
			path[i].index = n
		}
	}
	return path, nil
}

// A pathReader reads a JSON text once, from start to end, and calls use for
// each value that the path names.
type pathReader struct {
	s     *jsonx.Stream
	many  bool
	use   func(v any) error
	count int64
	size  int64
	where string // where the path ended, for messages
}

// run reads the whole text, because a part of an invalid JSON text must not be
// trusted.
func (p *pathReader) run(path []pathSegment, use func(v any) error, fallback json.RawMessage) error {
	p.use = use
	if err := p.walk(path, ""); err != nil {
		return jsonFault(err)
	}
	if err := p.s.End(); err != nil {
		return jsonFault(err)
	}
	if p.count == 0 && !p.many && fallback == nil {
		return fault.New(fault.InputInvalid, "the path leads nowhere: %s; give \"default\" for a value that may be missing", p.where)
	}
	return nil
}

func (p *pathReader) walk(path []pathSegment, at string) error {
	if len(path) == 0 {
		before := p.s.Offset()
		v, err := p.s.Value()
		if err != nil {
			return err
		}
		p.count++
		p.size += p.s.Offset() - before
		return p.use(v)
	}
	switch seg, kind := path[0], p.s.Kind(); {
	case kind == '{' && (seg.named || seg.all):
		return p.object(path, at)
	case kind == '[' && (seg.index >= 0 || seg.all):
		return p.array(path, at)
	default:
		if p.where == "" {
			p.where = fmt.Sprintf("%s is %s", shownPath(at), map[byte]string{'{': "an object", '[': "a list", '"': "a text", '0': "a number", 't': "true", 'f': "false", 'n': "null"}[kind])
		}
		return p.s.Skip()
	}
}

func (p *pathReader) object(path []pathSegment, at string) error {
	if _, err := p.s.Open(); err != nil {
		return err
	}
	const most = 8
	var names []string
	found := false
	for p.s.Kind() != '}' {
		name, err := p.s.Name()
		if err != nil {
			return err
		}
		if path[0].all || name == path[0].name {
			found = true
			err = p.walk(path[1:], at+"/"+jsonx.EscapeToken(name))
		} else {
			if len(names) < most {
				names = append(names, fmt.Sprintf("%.40q", name))
			}
			err = p.s.Skip()
		}
		if err != nil {
			return err
		}
	}
	if !found && p.where == "" {
		p.where = fmt.Sprintf("%s has no member %.60q; it has %s", shownPath(at), path[0].name, strings.Join(names, ", "))
		if len(names) == 0 {
			p.where = shownPath(at) + " is empty"
		}
	}
	return p.s.Close()
}

func (p *pathReader) array(path []pathSegment, at string) error {
	if _, err := p.s.Open(); err != nil {
		return err
	}
	n := int64(0)
	for ; p.s.Kind() != ']'; n++ {
		var err error
		if path[0].all || n == path[0].index {
			err = p.walk(path[1:], at+"/"+strconv.FormatInt(n, 10))
		} else {
			err = p.s.Skip()
		}
		if err != nil {
			return err
		}
	}
	if !path[0].all && n <= path[0].index && p.where == "" {
		p.where = fmt.Sprintf("%s has %d elements and none at %d", shownPath(at), n, path[0].index)
	}
	return p.s.Close()
}

func shownPath(at string) string {
	if at == "" {
		return "the value"
	}
	if len(at) > 100 {
		at = at[:100] + "…"
	}
	return at
}
