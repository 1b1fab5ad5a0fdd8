// SPDX-License-Identifier: Apache-2.0

// Package command makes actions of the commands that an operator has configured.
//
// The operator writes which program runs, with which arguments, and which of them a recipe
// fills; a recipe never writes an option, a second command or a path. There is no shell. The
// package decides what such a configuration may say, what becomes of the inputs of a step and
// of what a program leaves behind. Package confine decides what the program can reach.
package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/confine"
	"github.com/roux-engine/roux/internal/pattern"
	"github.com/roux-engine/roux/internal/view"
)

// Prefix is what the name of an action has before that of its command.
const Prefix = "exec-"

// A Spec is one command as the operator has written it.
type Spec struct {
	Description string `json:"description"`
	Version     string `json:"version"` // semantic; "" = 1.0.0
	// Run is the program and its arguments.
	Run        []Part               `json:"run"`
	Parameters map[string]Parameter `json:"parameters"`
	// Env is the environment; a value that is {name} alone is that of a parameter.
	Env map[string]string `json:"env"`
	// Stdin is {name} of a parameter that the program reads as its standard input.
	Stdin string `json:"stdin"`
	// Stdout is what the standard output is: text (default), json, file or log.
	Stdout  string            `json:"stdout"`
	Outputs map[string]Output `json:"outputs"`
	// Accounts are those whose recipes may call it; none = local.
	Accounts []string `json:"accounts"`

	Timeout        string   `json:"timeout"`
	Memory         string   `json:"memory"`
	Disk           string   `json:"disk"`
	Output         string   `json:"output"`
	Processes      int      `json:"processes"`
	Network        bool     `json:"network"`
	Confine        string   `json:"confine"` // "" or none
	Read           []string `json:"read"`
	OKExitCodes    []int    `json:"ok_exit_codes"`
	RetryExitCodes []int    `json:"retry_exit_codes"`
	Delivery       string   `json:"delivery"`
	Slots          int      `json:"slots"`
}

// A Part is an argument, or arguments that are there only if a boolean parameter is true.
type Part struct {
	Text string
	If   string   // the parameter; "" = Text is an argument
	Args []string // those that are there if it is true
}

// UnmarshalJSON reads a text, or an object with `if` and `args`.
func (p *Part) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &p.Text)
	}
	var o struct {
		If   *string  `json:"if"`
		Args []string `json:"args"`
	}
	if err := strict(data, &o); err != nil {
		return fmt.Errorf("run: want texts in quotes, or {if: PARAMETER, args: [TEXT]}: %w", err)
	}
	if o.If == nil || *o.If == "" || len(o.Args) == 0 {
		return errors.New("run: want {if: PARAMETER, args: [TEXT]}")
	}
	p.If, p.Args = *o.If, o.Args
	return nil
}

// A Parameter is an input of a command.
type Parameter struct {
	Type        string          `json:"type"` // string (default), integer, boolean or file
	Description string          `json:"description"`
	Pattern     string          `json:"pattern"` // the whole value matches it
	Enum        []string        `json:"enum"`
	MaxLength   int             `json:"max_length"` // characters; 0 = 1000
	Min         *int64          `json:"min"`
	Max         *int64          `json:"max"`
	Default     json.RawMessage `json:"default"`
	As          string          `json:"as"`           // the name of a file in the working directory
	LeadingDash bool            `json:"leading_dash"` // a value may begin with -
	Secret      bool            `json:"secret"`       // the value is removed from everything that the command prints
}

// An Output is a file, or files, that a command leaves behind.
type Output struct {
	Path     string `json:"path"` // in the working directory; with * or ? it is a list
	Optional bool   `json:"optional"`
	MimeType string `json:"mime_type"`
}

// UnmarshalJSON reads a path, or an object.
func (o *Output) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &o.Path)
	}
	type plain Output
	return strict(data, (*plain)(o))
}

func (o Output) list() bool { return strings.ContainsAny(o.Path, "*?[") }

// The types of parameters.
const (
	typeString  = "string"
	typeInteger = "integer"
	typeBoolean = "boolean"
	typeFile    = "file"
)

// What the standard output may be.
const (
	stdoutText = "text"
	stdoutJSON = "json"
	stdoutFile = "file"
	stdoutLog  = "log"
)

// Bounds of what an operator may write, and defaults.
const (
	maxCommands  = 200
	maxArguments = 200
	maxText      = 100_000 // bytes of a value: the kernel takes 128 KiB for an argument
	defaultText  = 1000

	minMemory, defaultMemory, maxMemory = 64 << 20, 512 << 20, 1 << 40
	defaultDisk, maxDisk                = 1 << 30, 1 << 40
	defaultOutput, maxOutput            = 1 << 20, 32 << 20
	defaultProcesses, maxProcesses      = 256, 10_000
	defaultTimeout, maxTimeout          = time.Minute, 24 * time.Hour
)

var (
	commandName   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,50}$`)
	parameterName = regexp.MustCompile(`^[a-z][A-Za-z0-9_]{0,63}$`)
	placeholder   = regexp.MustCompile(`\{([a-z][A-Za-z0-9_]*)\}`)
	variableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,100}$`)
	versionText   = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)
)

// reserved are the fields of an output that are no files of the operator's.
var reserved = []string{"exitCode", "stdout", "stdoutFile", "stdoutBytes", "stderr", "result"}

// whole returns the parameter that a text consists of.
func whole(text string) (name string, ok bool) {
	m := placeholder.FindStringSubmatch(text)
	if m == nil || m[0] != text {
		return "", false
	}
	return m[1], true
}

// strict decodes JSON without unknown fields.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return errors.New("there is more after it")
	}
	return nil
}

// Parse reads the table of commands from JSON, and checks it. No text is an empty table.
func Parse(text string) (map[string]Spec, error) {
	if text == "" {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	if err := strict([]byte(text), &raw); err != nil {
		return nil, err
	}
	if len(raw) > maxCommands {
		return nil, fmt.Errorf("there are %d commands: want at most %d", len(raw), maxCommands)
	}
	specs := map[string]Spec{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		var s Spec
		err := strict(raw[name], &s)
		if err == nil && !commandName.MatchString(name) {
			err = errors.New("want a name of lower case letters, digits and -, such as make-thumbnail")
		}
		if err == nil {
			err = s.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", view.OneLine(view.Cut(name, 60)), err)
		}
		specs[name] = s
	}
	return specs, nil
}

// check reports what is wrong with a command.
func (s *Spec) check() error {
	if s.Version != "" && !versionText.MatchString(s.Version) {
		return fmt.Errorf("version: want three numbers such as 1.0.0")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		p := s.Parameters[name]
		err := p.check()
		if err == nil && !parameterName.MatchString(name) {
			err = errors.New("want a name such as fileName")
		}
		if err != nil {
			return fmt.Errorf("parameters: %s: %w", view.OneLine(view.Cut(name, 60)), err)
		}
	}
	for _, check := range []func() error{s.checkRun, s.checkEnv, s.checkFiles, s.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return s.checkUsed()
}

func (p *Parameter) check() error {
	kind := p.kind()
	if !slices.Contains([]string{typeString, typeInteger, typeBoolean, typeFile}, kind) {
		return fmt.Errorf("type is %q: want string, integer, boolean or file", view.Cut(kind, 20))
	}
	of := func(given bool, field, of string) error {
		if given && kind != of {
			return fmt.Errorf("%s is of parameters of type %s only", field, of)
		}
		return nil
	}
	err := errors.Join(of(p.Pattern != "", "pattern", typeString), of(p.Enum != nil, "enum", typeString), of(p.MaxLength != 0, "max_length", typeString),
		of(p.Min != nil, "min", typeInteger), of(p.Max != nil, "max", typeInteger), of(p.As != "", "as", typeFile), of(p.Secret, "secret", typeString))
	switch {
	case err != nil:
		return err
	case p.MaxLength < 0 || p.MaxLength > maxText:
		return fmt.Errorf("max_length: want 1 to %d", maxText)
	case p.Min != nil && p.Max != nil && *p.Min > *p.Max:
		return errors.New("min is larger than max")
	case p.Enum != nil && len(p.Enum) == 0:
		return errors.New("enum: want at least one value")
	case kind == typeFile && p.Default != nil:
		return errors.New("a file has no default")
	case kind == typeFile && p.LeadingDash:
		return errors.New("leading_dash: the name of a file is the operator's")
	}
	if p.Pattern != "" {
		if _, err := pattern.Compile(anchored(p.Pattern)); err != nil {
			return fmt.Errorf("pattern: %w", err)
		}
	}
	if p.As != "" {
		if err := checkPath(p.As); err != nil {
			return fmt.Errorf("as: %w", err)
		}
	}
	if p.Default != nil {
		if _, err := p.text(p.Default); err != nil {
			return fmt.Errorf("default: %w", err)
		}
	}
	return nil
}

func (p *Parameter) kind() string {
	if p.Type == "" {
		return typeString
	}
	return p.Type
}

// anchored returns a regular expression that the whole of a value matches.
func anchored(expr string) string { return `^(?:` + expr + `)$` }

// checkPath checks a path in the working directory.
func checkPath(name string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name || name == "." || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "\\\x00") {
		return fmt.Errorf("%q: want a path in the working directory, such as out.png", view.OneLine(view.Cut(name, 60)))
	}
	return nil
}

func (s *Spec) checkRun() error {
	if len(s.Run) == 0 || s.Run[0].If != "" || s.Run[0].Text == "" {
		return errors.New("run: want the program and its arguments, such as [/usr/bin/convert, \"{image}\", out.png]")
	}
	program := s.Run[0].Text
	switch {
	case placeholder.MatchString(program):
		return errors.New("run: the program is the operator's: it cannot be a parameter")
	case strings.ContainsAny(program, `/\`) && (!filepath.IsAbs(program) || filepath.Clean(program) != program):
		return fmt.Errorf("run: %q: want an absolute path, or a name without directory, which is looked for in %s", view.OneLine(view.Cut(program, 60)), confine.SearchPath)
	}
	ways, n := map[reading]bool{startOf(program): true}, 0
	for _, part := range s.Run[1:] {
		args := part.Args
		if part.If == "" {
			args = []string{part.Text}
		} else if p, ok := s.Parameters[part.If]; !ok || p.kind() != typeBoolean {
			return fmt.Errorf("run: if: want a parameter of type boolean, found %q", view.OneLine(view.Cut(part.If, 60)))
		}
		after, err := s.readArguments(ways, args)
		if err != nil {
			return fmt.Errorf("run: %w", err)
		}
		if part.If != "" {
			maps.Copy(after, ways) // it may be missing
		}
		ways = after
		n += len(args)
	}
	if n > maxArguments {
		return fmt.Errorf("run: there are %d arguments: want at most %d", n, maxArguments)
	}
	return s.checkStdin(ways)
}

// checkStdin refuses a value as the standard input of an interpreter that could read its program
// from there.
func (s *Spec) checkStdin(ways map[reading]bool) error {
	name, _ := whole(s.Stdin)
	if p, ok := s.Parameters[name]; !ok || p.kind() == typeFile {
		return nil
	}
	for r := range ways {
		if !r.hasProgram() {
			return fmt.Errorf("run: %s could take a program or options from its standard input, the value of %q; write the program here, or in a file, after --", path.Base(s.Run[0].Text), name)
		}
	}
	return nil
}

// readArguments checks some arguments. It takes and returns the ways in which an interpreter may
// have read the arguments so far: there are several if some are there only under a condition.
func (s *Spec) readArguments(ways map[reading]bool, args []string) (map[reading]bool, error) {
	for _, arg := range args {
		if err := s.checkText(arg); err != nil {
			return nil, err
		}
		name, isValue := whole(arg)
		p := s.Parameters[name]
		if isValue && p.kind() == typeFile {
			isValue, arg = false, p.at(name)
		}
		next := map[reading]bool{}
		for r := range ways {
			after, ok := r.text(arg), true
			if isValue {
				after, ok = r.value(p.LeadingDash)
			}
			if !ok {
				return nil, fmt.Errorf("%s could run the value of %q as a program; write its options first, then --, the program or the file that has it, and the value after that", path.Base(s.Run[0].Text), name)
			}
			next[after] = true
		}
		ways = next
	}
	return ways, nil
}

// checkText checks a text in which a parameter may be the whole.
func (s *Spec) checkText(text string) error {
	if strings.Contains(text, "\x00") {
		return errors.New("a text cannot contain the character NUL")
	}
	name, ok := whole(text)
	if ok {
		if _, found := s.Parameters[name]; !found {
			return fmt.Errorf("there is no parameter %q", name)
		}
		return nil
	}
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if _, found := s.Parameters[m[1]]; found {
			return fmt.Errorf("{%s} is a part of %q: a parameter is a whole argument, so that it cannot become an option", m[1], view.OneLine(view.Cut(text, 60)))
		}
	}
	return nil
}

// steering are variables with which a program or its libraries run something else.
var steering = regexp.MustCompile(`^(LD_.*|GLIBC_.*|GCONV_PATH|.*PATH|.*PRELOAD|.*OPTIONS|.*OPTS?|.*FLAGS|BASH_ENV|ENV|IFS|PS4|SHELL|HOME|TMPDIR|EDITOR|VISUAL|PAGER|PYTHON.*|PERL.*|RUBY.*|NODE_.*|JAVA_.*|GIT_.*)$`)

func (s *Spec) checkEnv() error {
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !variableName.MatchString(name) {
			return fmt.Errorf("env: %q is no name of a variable", view.OneLine(view.Cut(name, 60)))
		}
		if err := s.checkText(s.Env[name]); err != nil {
			return fmt.Errorf("env: %s: %w", name, err)
		}
		if _, ok := whole(s.Env[name]); ok && steering.MatchString(name) {
			return fmt.Errorf("env: %s decides what a program runs or how: its value is the operator's", name)
		}
	}
	return nil
}

func (s *Spec) checkFiles() error {
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		if p := s.Parameters[name]; p.kind() == typeFile {
			at := p.at(name)
			if used[at] {
				return fmt.Errorf("parameters: %s: another file is called %q, too", name, at)
			}
			used[at] = true
		}
	}
	if s.Stdin != "" {
		name, ok := whole(s.Stdin)
		if p, found := s.Parameters[name]; !ok || !found || p.kind() == typeBoolean {
			return errors.New("stdin: want {NAME} of a parameter that is a string, an integer or a file")
		}
	}
	if s.Stdout != "" && !slices.Contains([]string{stdoutText, stdoutJSON, stdoutFile, stdoutLog}, s.Stdout) {
		return fmt.Errorf("stdout is %q: want text, json, file or log", view.Cut(s.Stdout, 20))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Outputs)) {
		o := s.Outputs[name]
		err := checkPath(o.Path)
		if _, bad := path.Match(o.Path, ""); err == nil && bad != nil {
			err = fmt.Errorf("path: %w", bad)
		}
		if err == nil && (!parameterName.MatchString(name) || slices.Contains(reserved, name)) {
			err = fmt.Errorf("want a name such as picture, and none of %s", strings.Join(reserved, ", "))
		}
		if err != nil {
			return fmt.Errorf("outputs: %s: %w", view.OneLine(view.Cut(name, 60)), err)
		}
	}
	return nil
}

// at is the name of the file of a parameter.
func (p *Parameter) at(name string) string {
	if p.As != "" {
		return p.As
	}
	return name
}

func (s *Spec) checkRest() error {
	for _, account := range s.Accounts {
		if err := access.CheckAccount(account); err != nil && account != "*" {
			return fmt.Errorf("accounts: %w", err)
		}
	}
	if s.Confine != "" && s.Confine != confineNone {
		return fmt.Errorf("confine is %q: want none, or leave it out", view.Cut(s.Confine, 20))
	}
	if s.Delivery != "" && s.Delivery != string(action.AtLeastOnce) && s.Delivery != string(action.AtMostOnce) {
		return fmt.Errorf("delivery is %q: want at_least_once or at_most_once", view.Cut(s.Delivery, 20))
	}
	if s.Processes < 0 || s.Processes > maxProcesses {
		return fmt.Errorf("processes: want 1 to %d", maxProcesses)
	}
	if s.Slots < 0 || s.Slots > maxProcesses {
		return fmt.Errorf("slots: want 1 to %d, or 0 for no limit", maxProcesses)
	}
	for _, code := range slices.Concat(s.OKExitCodes, s.RetryExitCodes) {
		if code < 0 || code > 255 {
			return fmt.Errorf("an exit code is %d: want 0 to 255", code)
		}
	}
	for _, dir := range s.Read {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/work", "/tmp"}, func(p string) bool { return dir == p || strings.HasPrefix(dir, p+"/") }) || dir == "/" {
			return fmt.Errorf("read: %q: want an absolute path, and none of /, /proc, /sys, /dev, /work and /tmp", view.OneLine(view.Cut(dir, 60)))
		}
	}
	_, err := s.limits()
	return err
}

// checkUsed refuses a parameter that nothing uses: it would be a mistake.
func (s *Spec) checkUsed() error {
	used := map[string]bool{}
	note := func(text string) {
		if name, ok := whole(text); ok {
			used[name] = true
		}
	}
	for _, part := range s.Run {
		note(part.Text)
		used[part.If] = true
		for _, arg := range part.Args {
			note(arg)
		}
	}
	for _, v := range s.Env {
		note(v)
	}
	note(s.Stdin)
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		// A file may be read by its name.
		if p := s.Parameters[name]; !used[name] && p.kind() != typeFile {
			return fmt.Errorf("parameters: %s: nothing uses it; write \"{%s}\" where its value belongs", name, name)
		}
	}
	return nil
}

const confineNone = "none"

// Opens returns the field with which a command can reach more than its own files; "" = none.
func (s *Spec) Opens() string {
	switch {
	case s.Confine == confineNone:
		return "confine: none"
	case s.Network:
		return "network: true"
	case len(s.Read) > 0:
		return "read"
	}
	return ""
}

// limits are the limits of a command, as numbers.
type limits struct {
	timeout              time.Duration
	memory, disk, output int64
	processes            int
}

func (s *Spec) limits() (l limits, err error) {
	l = limits{defaultTimeout, defaultMemory, defaultDisk, defaultOutput, defaultProcesses}
	if s.Timeout != "" {
		if l.timeout, err = time.ParseDuration(s.Timeout); err != nil || l.timeout < time.Millisecond || l.timeout > maxTimeout {
			return l, fmt.Errorf("timeout: want a duration such as 30s, at most %s", maxTimeout)
		}
	}
	if s.Processes != 0 {
		l.processes = s.Processes
	}
	for _, f := range []struct {
		name      string
		text      string
		low, high int64
		into      *int64
	}{{"memory", s.Memory, minMemory, maxMemory, &l.memory}, {"disk", s.Disk, 1, maxDisk, &l.disk}, {"output", s.Output, 1, maxOutput, &l.output}} {
		if f.text == "" {
			continue
		}
		n, ok := bytesOf(f.text)
		if !ok || n < f.low || n > f.high {
			return l, fmt.Errorf("%s: want a size such as 512MiB, from %s to %s", f.name, view.ShortBytes(f.low), view.ShortBytes(f.high))
		}
		*f.into = n
	}
	return l, nil
}

// bytesOf reads a size such as 512MiB.
func bytesOf(text string) (int64, bool) {
	for _, u := range view.ByteUnits {
		if digits, ok := strings.CutSuffix(text, u.Name); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
			return n * u.Bytes, err == nil && n >= 0 && n <= (1<<62)/u.Bytes
		}
	}
	return 0, false
}
