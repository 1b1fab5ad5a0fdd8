// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// TestExitCodes: whatever code an error carries, however deep, the command ends
// with the exit code of the documented table, and says what to do (X124).
func TestExitCodes(t *testing.T) {
	for _, row := range fault.All() {
		err := fmt.Errorf("while trying: %w", fault.New(row.Code, "it went wrong\x1b[2J"))
		if got := fault.ExitCode(err); got != row.Exit {
			t.Errorf("%s exits %d, the table says %d", row.Code, got, row.Exit)
		}
		var out, talk bytes.Buffer
		a := &app{stdout: &out, stderr: &talk, output: asJSON, screen: newScreen(&talk, true, func(string) string { return "" })}
		a.report(err)
		for _, want := range []string{`error: it went wrong\x1b[2J`, row.Remedy, fmt.Sprintf("%s, exit %d", row.Code, row.Exit)} {
			if !strings.Contains(talk.String(), want) {
				t.Errorf("%s: the talk lacks %q:\n%s", row.Code, want, talk.String())
			}
		}
		var obj struct {
			Error errorObject `json:"error"`
		}
		if err := json.Unmarshal(out.Bytes(), &obj); err != nil || obj.Error.Code != row.Code || obj.Error.Exit != row.Exit || obj.Error.Remedy != row.Remedy {
			t.Errorf("%s: %v\n%s", row.Code, err, out.String())
		}
	}
	var out, talk bytes.Buffer
	a := &app{stdout: &out, stderr: &talk, output: asTable, screen: newScreen(&talk, true, func(string) string { return "" })}
	if a.report(nil); out.Len()+talk.Len() > 0 {
		t.Errorf("without an error: %q %q", out.String(), talk.String())
	}
	a.report(&fault.Error{Code: fault.InputInvalid, Msg: "first", Diags: []fault.Diagnostic{
		{Code: fault.InputInvalid, Rule: "required", Msg: "first"}, {Code: fault.InputInvalid, Rule: "type", Msg: "second"},
	}})
	if got := talk.String(); !strings.Contains(got, "/required: first\n") || !strings.Contains(got, "/type: second\n") || !strings.Contains(got, "2 problems") || out.Len() > 0 {
		t.Errorf("several problems:\n%s", got)
	}
}
