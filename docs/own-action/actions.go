// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/roux-engine/roux/action"

// actions are the actions that recipes may call in addition to the built-in ones.
var actions = []action.Action{shorten, pay}
