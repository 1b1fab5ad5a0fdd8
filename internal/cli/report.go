// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// An errorObject is an error in JSON or YAML output.
type errorObject struct {
	Code        fault.Code         `json:"code"`
	Message     string             `json:"message"`
	Remedy      string             `json:"remedy,omitempty"`
	Exit        int                `json:"exit"`
	Diagnostics []fault.Diagnostic `json:"diagnostics,omitempty"`
	*fault.Limit
}

// report writes an error to standard error: the message, the remedy and the code.
// With -o json, jsonl or yaml it also writes it to standard output as an object.
func (a *app) report(err error) {
	if err == nil {
		return
	}
	code := fault.CodeOf(err)
	info, _ := fault.Lookup(code)
	remedy := fault.RemedyOf(err)
	var e *fault.Error
	errors.As(err, &e)
	if e != nil && e.Limit != nil && e.Limit.Source == "account" && e.Limit.Missing > 0 && e.Remedy == "" {
		remedy = fmt.Sprintf("`%s` adds them; with `--max-credits` the run may pay less.", a.hint(fmt.Sprintf("credits grant %d", e.Limit.Missing), ""))
	}
	if a.objects() {
		obj := errorObject{Code: code, Message: fault.Message(err), Remedy: remedy, Exit: fault.ExitCode(err)}
		if e != nil {
			obj.Diagnostics, obj.Limit = e.Diags, e.Limit
		}
		a.encode(map[string]any{"error": obj})
	}
	if !a.shown && e != nil {
		a.annotate(e.Diags)
	}
	if a.shown {
		// The diagnostics were printed earlier, with the source text.
		return
	}
	msg := view.OneLine(fault.Message(err))
	var b strings.Builder
	if e != nil && len(e.Diags) == 1 && e.Diags[0].Pos.File != "" {
		msg = view.OneLine(e.Diags[0].Pos.String() + ": " + msg)
	}
	if e != nil && len(e.Diags) > 1 {
		msg = fmt.Sprintf("%s: %s", strings.TrimSuffix(info.Meaning, "."), view.Count(len(e.Diags), "problem"))
		for _, d := range e.Diags {
			fmt.Fprintf(&b, "%s\n", view.OneLine(d.String()))
		}
	}
	fmt.Fprintf(&b, "%s %s\n", a.screen.Paint("error", "error:"), msg)
	if remedy != "" && !saysNext(code, msg, remedy) {
		fmt.Fprintf(&b, "  %s\n", remedy)
	}
	fmt.Fprintf(&b, "  %s\n", a.screen.Paint("quiet", string(code)+", exit "+fmt.Sprint(fault.ExitCode(err))))
	a.screen.Print(b.String())
}

// saysNext reports whether a message already names the next command, so that the
// remedy would repeat it.
func saysNext(code fault.Code, msg, remedy string) bool {
	if strings.Contains(msg, strings.TrimSuffix(remedy, ".")) {
		return true
	}
	if code == fault.Usage {
		return strings.Contains(msg, "`roux ")
	}
	_, rest, _ := strings.Cut(remedy, "`")
	command, _, ok := strings.Cut(rest, "`")
	return ok && strings.Contains(msg, "`"+command+"`")
}

// writeJSON writes one JSON value and a newline.
func writeJSON(w io.Writer, v any, indent bool) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	text := buf.Bytes()
	if term.IsTerminal(w) {
		text = term.EscapeJSON(text)
	}
	_, err := w.Write(text)
	return err
}

// text writes to standard output.
func (a *app) text(format string, args ...any) {
	fmt.Fprintf(a.stdout, format, args...)
}
