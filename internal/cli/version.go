// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// A build identifies this build of Roux.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Plan     int    `json:"plan"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	// Removable is set when guards can be removed from this build. Removed lists
	// those that are. A build for use has all guards.
	Removable bool     `json:"guardsRemovable,omitempty"`
	Removed   []string `json:"guardsRemoved,omitempty"`
}

func thisBuild() build {
	b := build{Version: "unreleased", Plan: plan.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Removable: mutation.Removable, Removed: mutation.Removed()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) short() string {
	return view.Join(" ", b.Version, view.Cut(b.Commit, 12), fmt.Sprintf("(%s, %s/%s)", b.Go, b.OS, b.Arch))
}

// broken returns the warning about a build from which guards are or can be removed.
func (b build) broken() string {
	if len(b.Removed) == 0 {
		return "this build can be broken on purpose, for tests alone: by " + mutation.Variable
	}
	return "this build is broken on purpose, for tests alone: " + strings.Join(b.Removed, ", ")
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print which Roux this is",
		Example: "roux version -o json",
		Args:    wants(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			a.show(b, func() {
				a.text("roux %s\n", b.short())
				if b.Removable {
					a.text("%s\n", b.broken())
				}
			})
			return nil
		},
	}
}
