// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/roux-engine/roux/action"

// actions are what recipes may call here beside the built-in ones.
var actions = []action.Action{shorten, pay}
