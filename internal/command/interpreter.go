// SPDX-License-Identifier: Apache-2.0

package command

import (
	"path"
	"regexp"
	"strings"
)

// An interpreter is a program that runs one of its arguments, or the file that one names.
//
// The check of its arguments is a safety net for the operator's configuration; what bounds a
// program is its confinement. Of each interpreter only some options are known here, and a value
// is refused where it is not certain what the arguments before it are.
type interpreter struct {
	names   *regexp.Regexp
	program *regexp.Regexp // options whose argument is a program, or the file that has it
	flags   *regexp.Regexp // options, and first words, that do not take the next argument
	refused *regexp.Regexp // arguments after which no value is permitted
	plus    bool           // + begins an option, too
	more    bool           // options may follow after a program that an option has given
	always  bool           // options may follow after any argument
	wraps   bool           // the program is one of the machine, with the arguments that follow
	stdin   bool           // what it reads from its standard input becomes arguments
}

// exactly compiles an expression that matches the whole of an argument.
func exactly(expr string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + expr + `)$`) }

// interpreters are those whose arguments are checked.
var interpreters = []interpreter{
	{names: exactly(`sh|bash|dash|ash|zsh|ksh|mksh`), program: exactly(`-[aefhilmnuvxEC]*c[aefhilmnuvxEC]*`),
		flags: exactly(`-[aefhilmnuvxEC]+|--(norc|noprofile|posix|login)`), refused: exactly(`-[A-Za-z]*s[A-Za-z]*`), plus: true},
	{names: exactly(`fish`), program: exactly(`-c`), more: true},
	{names: exactly(`python[0-9.]*|pypy[0-9.]*`), program: exactly(`-[bBdEiIOPqRsSuvx]*[cm]`), flags: exactly(`-[bBdEiIOPqRsSuvx]+|-[WX].+`)},
	{names: exactly(`perl[0-9.]*`), program: exactly(`-[0-9aclnpsuwTW]*[eE]`), flags: exactly(`-[0-9aclnpsuwTW]+|-[IMm].+`), more: true},
	{names: exactly(`ruby[0-9.]*`), program: exactly(`-[0-9aclnpsw]*e`), flags: exactly(`-[0-9aclnpsw]+|-[Ir].+`), more: true},
	{names: exactly(`node|nodejs`), program: exactly(`-e|-p|-pe|--eval|--print`), flags: exactly(`--no-[a-z-]+`), more: true},
	{names: exactly(`deno`), program: exactly(`eval`), flags: exactly(`run|serve|test|bench|task|-[Aq]|--allow-[a-z]+`), more: true},
	{names: exactly(`bun`), program: exactly(`-e|-p|--eval|--print`), flags: exactly(`run|x|exec|test|-b`), more: true},
	{names: exactly(`php[0-9.]*`), program: exactly(`-[rfBRFE]`), flags: exactly(`-[nq]`), more: true},
	{names: exactly(`lua[0-9.]*|luajit|expect|tclsh[0-9.]*`)}, // after their -e and -c they still run a file
	{names: exactly(`[gmn]?awk`), program: exactly(`-[efE]|--source|--file|--exec`), flags: exactly(`-[Fv].+|--(posix|csv|sandbox)`), more: true},
	{names: exactly(`g?sed`), program: exactly(`-[nErsuz]*[ef]|--expression|--file`),
		flags: exactly(`-[nErsuz]+|--(quiet|silent|regexp-extended|null-data|posix|sandbox)`), more: true, always: true},
	{names: exactly(`osascript|Rscript`), program: exactly(`-e`), flags: exactly(`--vanilla|--quiet`), more: true},
	{names: exactly(`pwsh|powershell`), program: exactly(`-File|-f`), flags: exactly(`-(NoProfile|NonInteractive|NoLogo)`), refused: exactly(`-.*`)},
	{names: exactly(`xargs`), stdin: true},
	{names: exactly(`env|busybox|toybox|nice|ionice|nohup|setsid|stdbuf|time|timeout`), flags: exactly(`-i|-[0-9]+`), wraps: true},
}

// matches reports whether an expression matches an argument; nil matches none.
func matches(re *regexp.Regexp, arg string) bool { return re != nil && re.MatchString(arg) }

// A reading is how far an interpreter has read its arguments.
type reading struct {
	of    *interpreter
	state state
}

// A state says what an interpreter takes the next argument for.
type state uint8

const (
	started    state = iota // an option, or its program
	unsure                  // as started, or the argument of the option before it, which is not known here
	expecting               // its program, because the option before it says so
	positional              // its program, because -- is before it
	given                   // an option has given it a program: another option, or an argument of the program
	passing                 // an argument of its program: anything is permitted
	refusing                // no value is permitted
)

// startOf returns how a program begins to read its arguments.
func startOf(program string) reading {
	name := strings.TrimSuffix(path.Base(strings.ReplaceAll(program, `\`, "/")), ".exe")
	for i := range interpreters {
		switch in := &interpreters[i]; {
		case !in.names.MatchString(name):
		case in.stdin:
			return reading{in, refusing}
		default:
			return reading{in, started}
		}
	}
	return reading{state: passing}
}

// text returns the reading after an argument of the operator's.
func (r reading) text(arg string) reading {
	if r.state == passing || r.state == refusing {
		return r
	}
	in := r.of
	option := len(arg) > 1 && (arg[0] == '-' || in.plus && arg[0] == '+')
	switch {
	case r.state == given && !option:
		if !in.always {
			r.state = passing
		}
	case r.state == given && arg == "--":
		r.state = passing
	case fromStdin(arg):
		r.state = refusing
	case r.state == positional:
		return r.program(arg)
	case arg == "--":
		r.state = positional
	case matches(in.program, arg):
		r.state = expecting
	case matches(in.flags, arg), strings.HasPrefix(arg, "--") && strings.Contains(arg, "="):
	case matches(in.refused, arg):
		r.state = refusing
	case option:
		r.state = unsure
	case r.state == unsure:
		r.state = started
	default:
		return r.program(arg)
	}
	return r
}

// program returns the reading after the program.
func (r reading) program(arg string) reading {
	in := r.of
	switch {
	case in.wraps && notWrapped.MatchString(arg):
	case in.wraps:
		return startOf(arg)
	case in.always && r.state == started, in.more && r.state == expecting:
		r.state = given
	default:
		r.state = passing
	}
	return r
}

// notWrapped matches what comes before the program that another one starts: variables of env, and
// numbers, such as how long timeout waits.
var notWrapped = regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z0-9_]*=(?s:.*)|[0-9.]+[smhd]?)$`)

// value returns the reading after a value of a recipe. It is not ok if the interpreter could run
// the value.
func (r reading) value(leadingDash bool) (after reading, ok bool) {
	switch {
	case r.state == passing:
	case r.state == given && !leadingDash:
		if !r.of.always {
			r.state = passing
		}
	default:
		return r, false
	}
	return r, true
}

// hasProgram reports whether the interpreter does not read its program from the standard input.
func (r reading) hasProgram() bool { return r.state == given || r.state == passing }

// fromStdin reports whether a file is the standard input.
func fromStdin(file string) bool {
	return file == "-" || strings.HasPrefix(file, "/dev/stdin") || strings.HasPrefix(file, "/dev/fd/") || strings.HasPrefix(file, "/proc/")
}
