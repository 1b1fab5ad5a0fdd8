// SPDX-License-Identifier: Apache-2.0

//go:build small

package plan

import "github.com/roux-engine/roux/fault"

// ChildWorkspace refuses a workspace: the small roux has none.
func ChildWorkspace(string, string) (string, error) {
	return "", fault.New(fault.NotAvailable, "the small roux has no workspaces")
}

func checkWorkspace(string) bool { return true }
