// SPDX-License-Identifier: Apache-2.0

//go:build small

package workspace

import "github.com/roux-engine/roux/action"

// Actions returns nothing: the small roux has no workspaces.
func Actions() []action.Action { return nil }
