// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// annotate writes diagnostics for an automatic build (CI=1): one line each in the
// format that GitHub and compatible services read from the log.
func (a *app) annotate(diags []fault.Diagnostic) {
	if !a.screen.CI() {
		return
	}
	for _, d := range diags {
		a.screen.Print(annotation(d))
	}
}

// annotation formats a diagnostic as one line for GitHub.
func annotation(d fault.Diagnostic) string {
	var props []string
	if d.Pos.File != "" {
		props = append(props, "file="+property(d.Pos.File))
	}
	if d.Pos.Line > 0 {
		props = append(props, fmt.Sprintf("line=%d", d.Pos.Line), fmt.Sprintf("col=%d", max(1, d.Pos.Col)))
	}
	props = append(props, "title="+property(string(d.Code)+"/"+d.Rule))
	return fmt.Sprintf("::%s %s::%s\n", d.Severity, strings.Join(props, ","), message(diagnosticText(d)))
}

// annotateRun writes an annotation for a failed run.
func (a *app) annotateRun(recipe string, res result) {
	if a.screen.CI() {
		a.screen.Print(fmt.Sprintf("::error title=%s::%s\n", property(string(res.Error.Code)),
			message(fmt.Sprintf("%s %s: %s", recipe, res.ID, res.Error.Message))))
	}
}

// message escapes what would end an annotation or begin another.
func message(s string) string {
	return strings.ReplaceAll(view.OneLine(s), "%", "%25")
}

// property escapes a value before the message of an annotation.
func property(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(message(s))
}
