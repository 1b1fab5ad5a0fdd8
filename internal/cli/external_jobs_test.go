// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"strings"
	"testing"
)

// The commands work by themselves, where nobody asks services, and say what is wrong with a name.
func TestExternalJobsCommands(t *testing.T) {
	t.Setenv("ROUX_DATA", shortDir(t))
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"jobs list", 0, "no step of the account local waits for a job"},
		{"jobs list -o json", 0, "[]"},
		{"jobs list --provider farm --state waiting", 0, "no step of the account local waits for a job"},
		{"jobs list --limit 0", 2, "want 1 or more"},
		{"jobs list --state ended", 2, "cancelling"},
		{"jobs show job_1", 2, "want PROVIDER/JOB"},
		{"jobs show farm/", 2, "want PROVIDER/JOB"},
		{"jobs show farm/a/b", 4, "it has ended, or there was none"},
		{"jobs poll @workers/x", 4, "it has ended, or there was none"},
	} {
		out, talk, code := inProcess("", strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out+talk, tt.want) {
			t.Errorf("%s: exit %d, want %d\n%s%s", tt.args, code, tt.code, out, talk)
		}
	}
}
