// SPDX-License-Identifier: Apache-2.0

//go:build !small

package plan

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// The bounds of a path in a workspace.
const (
	maxPathBytes = 512
	maxPathParts = 16
	maxPartBytes = 100
)

// WorkspacePath returns a relative path without its parts "." and what is doubled: that of the workspace of a
// child run, or that of a file in one. The error, fault.InputInvalid, says why no system, or not every one, can use it.
func WorkspacePath(text string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fault.New(fault.InputInvalid, "%.200q is no path in a workspace: %s", text, why)
	}
	switch {
	case !utf8.ValidString(text):
		return refuse("it is not UTF-8")
	case len(text) > maxPathBytes:
		return refuse("it has more than 512 bytes")
	case strings.HasPrefix(text, "/"):
		return refuse("it begins at the root of the file system; it begins at the workspace when it has no / in front")
	}
	var parts []string
	for part := range strings.SplitSeq(text, "/") {
		if part == "" || part == "." {
			continue
		}
		if why := refusedPart(part); why != "" {
			return refuse(why)
		}
		parts = append(parts, part)
	}
	switch {
	case len(parts) == 0:
		return refuse("it has no name")
	case len(parts) > maxPathParts:
		return refuse("it has more than 16 names")
	}
	return strings.Join(parts, "/"), nil
}

// refusedPart says why a name is not used in a path, or "".
func refusedPart(part string) string {
	stem, _, _ := strings.Cut(part, ".")
	stem = strings.ToUpper(strings.TrimSpace(stem))
	switch {
	case part == "..":
		return ".. leads out of it"
	case len(part) > maxPartBytes:
		return "a name in it has more than 100 bytes"
	case strings.ContainsFunc(part, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune(`<>:"\|?*`, r) }):
		return `a name in it has a control character or one of <>:"\|?*`
	case strings.HasPrefix(part, " ") || strings.HasSuffix(part, " ") || strings.HasSuffix(part, "."):
		return "a name in it begins or ends with a space, or ends with a dot"
	case stem == "CON" || stem == "PRN" || stem == "AUX" || stem == "NUL",
		len(stem) == 4 && (strings.HasPrefix(stem, "COM") || strings.HasPrefix(stem, "LPT")) && stem[3] >= '0' && stem[3] <= '9':
		return "Windows reserves a name in it for a device"
	}
	return ""
}

// checkWorkspace reports whether a path is "" or one that ChildWorkspace returns.
func checkWorkspace(path string) bool {
	is, err := WorkspacePath(path)
	return path == "" || err == nil && is == path
}

// stepName stands in the path of a workspace for the id of the step that starts the run.
const stepName = "${step.name}"

// ChildWorkspace returns the path that a step with that id says for the workspace of its child run.
func ChildWorkspace(text, step string) (string, error) {
	said := strings.ReplaceAll(text, stepName, step)
	if strings.Contains(said, "${") || strings.Contains(said, "{{") {
		return "", fault.New(fault.InputInvalid, "%.200q is no path of a workspace: %s is all that may stand for something else in it", text, stepName)
	}
	return WorkspacePath(said)
}
