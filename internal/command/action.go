// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/confine"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/view"
)

// localAccount is the account whose recipes may call a command that names none.
const localAccount = "local"

// A Set has the commands of a configuration.
type Set struct {
	commands []*command
	byAction map[string]*command
	dir      atomic.Pointer[string] // where working directories are made; nil = Open was not called
}

type command struct {
	set     *Set
	name    string
	spec    Spec
	limits  limits
	program atomic.Pointer[string] // absolute path; nil = Open was not called
}

// New returns the commands that were parsed by [Parse].
func New(specs map[string]Spec) (*Set, error) {
	s := &Set{byAction: map[string]*command{}}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		c := &command{set: s, name: name, spec: specs[name]}
		var err error
		if c.limits, err = c.spec.limits(); err != nil {
			return nil, err
		}
		s.commands = append(s.commands, c)
		s.byAction[Prefix+name] = c
	}
	return s, nil
}

// Actions returns an action for each command, sorted by name.
func (s *Set) Actions() (list []action.Action) {
	if s == nil {
		return nil
	}
	for _, c := range s.commands {
		list = append(list, c.action())
	}
	return list
}

// Permits reports whether the recipes of an account may call an action. Those that are no
// commands are none of its business.
func (s *Set) Permits(account, name string) bool {
	if s == nil {
		return true
	}
	c, ok := s.byAction[name]
	return !ok || c.permits(account)
}

func (c *command) permits(account string) bool {
	if len(c.spec.Accounts) == 0 {
		return account == localAccount
	}
	return slices.Contains(c.spec.Accounts, account) || slices.Contains(c.spec.Accounts, "*")
}

// Names returns the names of the commands, sorted.
func (s *Set) Names() (names []string) {
	if s == nil {
		return nil
	}
	for _, c := range s.commands {
		names = append(names, c.name)
	}
	return names
}

// Confined reports whether one of the commands runs confined.
func (s *Set) Confined() bool {
	return s != nil && slices.ContainsFunc(s.commands, func(c *command) bool { return c.spec.Confine != confineNone })
}

// Resolve finds the programs of the commands. The error is fault.ConfigInvalid when one does
// not exist or cannot be executed.
func (s *Set) Resolve() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, c := range s.commands {
		path, err := resolve(c.spec.Run[0].Text)
		if err != nil {
			errs = append(errs, fault.Wrap(fault.ConfigInvalid, err, "commands.%s: %v; install the program, or correct the path in `run`", c.name, err))
			continue
		}
		c.program.Store(&path)
	}
	return errors.Join(errs...)
}

// Open prepares the set to run its commands: it finds their programs, checks that the system
// confines them, and empties the directory in which each gets a working directory of its own, as
// far as that can be done. That directory is of one process at a time.
func (s *Set) Open(ctx context.Context, dir string) error {
	if s == nil || len(s.commands) == 0 {
		return nil
	}
	if err := s.Resolve(); err != nil {
		return err
	}
	if s.Confined() {
		if err := confine.Check(ctx); err != nil {
			return err
		}
	}
	// Working directories of a process that was killed. One that cannot be removed is in nobody's
	// way, because each attempt makes a directory with a new name.
	left := datadir.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	probe, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return errors.Join(left, err)
	}
	if err := os.Remove(probe); err != nil {
		return err
	}
	s.dir.Store(&dir)
	return nil
}

// resolve returns the path of a program.
func resolve(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(confine.SearchPath) {
		if path := filepath.Join(dir, name); executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %q in %s", view.OneLine(view.Cut(name, 60)), confine.SearchPath)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no program %s", path)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a program", path)
	case info.Mode()&0o111 == 0 && filepath.Ext(path) != ".exe":
		return fmt.Errorf("%s cannot be executed: its mode is %s", path, info.Mode())
	}
	return nil
}

// action returns the declaration.
func (c *command) action() action.Action {
	s := &c.spec
	parallel := true
	inputs := []action.TypeDefinition{}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		if p := s.Parameters[name]; p.kind() == typeFile {
			inputs = append(inputs, action.TypeDefinition{Name: name, MimeTypes: []string{"*/*"}, Description: cmp.Or(p.Description, "A file.")})
		}
	}
	return action.Action{
		Name:        Prefix + c.name,
		Version:     cmp.Or(s.Version, "1.0.0"),
		Revision:    s.revision(),
		Description: cmp.Or(s.Description, "Runs the command "+c.name+", which the operator has configured."),
		Input:       s.inputSchema(),
		Output:      s.outputSchema(),
		Metadata:    action.Metadata{InputTypes: inputs, OutputTypes: []action.TypeDefinition{}, Parallelizable: &parallel},
		Slots:       s.Slots,
		Delivery:    action.Delivery(s.Delivery),
		Limits:      c.limitTexts(),
		Faults:      []fault.Code{fault.CommandFailed, fault.CommandTemporary, fault.CommandLimit, fault.FileNotFound, fault.FileTooLarge},
		Run:         c.run,
	}
}

// revision names what the program is, what it is given, and what it can reach. Limits and accounts do
// not change a result.
func (s *Spec) revision() string {
	data, err := json.Marshal([]any{s.Run, s.Parameters, s.Env, s.Stdin, s.Stdout, s.Outputs, s.OKExitCodes, s.Network, s.Read, s.Confine})
	if err != nil {
		return "" // cannot happen: it consists of texts, numbers and JSON that was read
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

func (c *command) limitTexts() []string {
	l := c.limits
	texts := []string{
		fmt.Sprintf("It is killed after %s.", l.timeout),
		fmt.Sprintf("Its standard output has at most %s.", view.ShortBytes(l.output)),
	}
	if c.spec.Stdout == stdoutFile {
		texts[1] = fmt.Sprintf("Its standard output, and its files together, have at most %s each.", view.ShortBytes(l.disk))
	}
	if c.spec.Confine == confineNone {
		return append(texts, "It is not confined: it may do what the user of Roux may do.")
	}
	texts = append(texts, fmt.Sprintf("It may use %s of memory, %s of files and %d processes and threads.", view.ShortBytes(l.memory), view.ShortBytes(l.disk), l.processes))
	if c.spec.Network {
		return append(texts, "It may use the network.")
	}
	return append(texts, "It has no network.")
}

type object = map[string]any

// encoded returns a schema as JSON.
func encoded(schema object) json.RawMessage {
	data, err := json.Marshal(schema)
	if err != nil {
		return nil // cannot happen: it consists of texts, numbers and lists of them
	}
	return data
}

func (s *Spec) inputSchema() json.RawMessage {
	props, required := object{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		p := s.Parameters[name]
		o := object{"type": p.kind()}
		switch p.kind() {
		case typeFile:
			o = object{"type": "string", "format": "file"}
		case typeString:
			o["maxLength"] = p.maxLength()
		}
		if p.Pattern != "" {
			o["pattern"] = anchored(p.Pattern)
		}
		if p.Enum != nil {
			o["enum"] = p.Enum
		}
		if p.Min != nil {
			o["minimum"] = *p.Min
		}
		if p.Max != nil {
			o["maximum"] = *p.Max
		}
		if p.Description != "" {
			o["description"] = p.Description
		}
		if p.Default != nil {
			o["default"] = p.Default
		} else {
			required = append(required, name)
		}
		props[name] = o
	}
	return encoded(object{"type": "object", "properties": props, "required": required, "additionalProperties": false})
}

func (s *Spec) outputSchema() json.RawMessage {
	file := object{"type": "string", "format": "file"}
	props := object{
		"exitCode": object{"type": "integer", "description": "The exit code."},
		"stderr":   object{"type": "string", "description": "The end of the standard error, at most 4 KiB."},
	}
	required := []string{"exitCode", "stderr"}
	switch cmp.Or(s.Stdout, stdoutText) {
	case stdoutText:
		props["stdout"] = object{"type": "string", "description": "The standard output; empty if it is not text."}
		props["stdoutFile"] = object{"type": "string", "format": "file", "description": "The standard output as a file, if it is not text."}
		props["stdoutBytes"] = object{"type": "integer", "description": "The size of the standard output."}
		required = append(required, "stdout", "stdoutBytes")
	case stdoutJSON:
		props["result"] = object{"description": "The standard output, which is JSON."}
		required = append(required, "result")
	case stdoutFile:
		props["stdoutFile"] = object{"type": "string", "format": "file", "description": "The standard output as a file."}
		props["stdoutBytes"] = object{"type": "integer", "description": "The size of the standard output."}
		required = append(required, "stdoutFile", "stdoutBytes")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
		o := s.Outputs[name]
		if o.list() {
			props[name] = object{"type": "array", "items": file, "description": "The files " + o.Path + ", sorted by name."}
			required = append(required, name)
			continue
		}
		props[name] = object{"type": "string", "format": "file", "description": "The file " + o.Path + "."}
		if !o.Optional {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return encoded(object{"type": "object", "properties": props, "required": required})
}

// The bounds of the end of a standard error in a message.
const (
	maxEndLines = 3
	maxEndBytes = 500
)

// endOf returns the last lines of a text, for a message.
func endOf(text string) string {
	text = strings.TrimSpace(text)
	lines := strings.Split(text, "\n")
	end := strings.Join(lines[max(0, len(lines)-maxEndLines):], "\n")
	if len(end) > maxEndBytes {
		end = strings.ToValidUTF8(end[len(end)-maxEndBytes:], "")
	}
	if len(end) < len(text) {
		return "… " + end
	}
	return end
}
