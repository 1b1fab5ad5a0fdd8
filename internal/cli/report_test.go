// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// TestExitCodes checks that a command ends with the exit code of the documented table
// for each error code, however deeply it is wrapped, and prints a remedy (X124, X216).
func TestExitCodes(t *testing.T) {
	for _, row := range fault.All() {
		err := fmt.Errorf("while trying: %w", fault.New(row.Code, "it went wrong\x1b[2J"))
		if got := fault.ExitCode(err); got != row.Exit {
			t.Errorf("%s exits %d, the table says %d", row.Code, got, row.Exit)
		}
		var out, talk bytes.Buffer
		a := &app{stdout: &out, stderr: &talk, output: asJSON, screen: term.NewScreen(&talk, true, func(string) string { return "" })}
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
	a := &app{stdout: &out, stderr: &talk, output: asTable, screen: term.NewScreen(&talk, true, func(string) string { return "" })}
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

// TestExitNumbers checks the numbers of the exit codes and not the constants, because
// scripts compare with the numbers (ux.md section 4, X124).
func TestExitNumbers(t *testing.T) {
	for code, want := range map[fault.Code]int{
		"":                           0,
		fault.StepFailed:             1,
		fault.StepTimeout:            1,
		fault.ConditionError:         1,
		fault.ExecutionExpired:       1,
		fault.Usage:                  2,
		fault.InputInvalid:           2,
		fault.RecipeInvalid:          3,
		fault.CircularDependency:     3,
		fault.ActionNotFound:         3,
		fault.NotAvailable:           3,
		fault.RecipeNotFound:         4,
		fault.LensNotFound:           4,
		fault.FileNotFound:           4,
		fault.RunNotFound:            4,
		fault.StepNotFound:           4,
		fault.StoreReadOnly:          5,
		fault.Unauthorized:           5,
		fault.InsufficientCredits:    6,
		fault.QuotaExceeded:          6,
		fault.Conflict:               7,
		fault.TooLate:                7,
		fault.StoreLocked:            7,
		fault.StoreNewer:             7,
		fault.ServerUnreachable:      9,
		fault.ExecutionCancelled:     10,
		fault.AssertionFailed:        11,
		fault.StoreFull:              70,
		fault.StoreFailed:            70,
		fault.StoreUnsafe:            70,
		fault.StoreCorrupt:           70,
		fault.InternalError:          70,
		fault.Stopping:               130,
		"A_CODE_OF_SOMEBODYS_ACTION": 1,
	} {
		var err error
		if code != "" {
			err = fault.New(code, "no")
		}
		if got := fault.ExitCode(err); got != want {
			t.Errorf("%q exits %d, want %d", code, got, want)
		}
	}
	// The list lacks 8, the exit code of --timeout; 130 is also that of an interrupt.
	if fault.ExitTimeout != 8 || fault.ExitInterrupted != 130 {
		t.Errorf("waiting in vain exits %d, an interrupt %d", fault.ExitTimeout, fault.ExitInterrupted)
	}
	for status, want := range map[journal.RunStatus]int{journal.RunCompleted: 0, journal.RunFailed: 1, journal.RunExpired: 1, journal.RunCancelled: 10} {
		if got := exitOf(&view.Run{History: &journal.History{Status: status}}); got != want {
			t.Errorf("a run that is %v exits %d, want %d", status, got, want)
		}
	}
}
