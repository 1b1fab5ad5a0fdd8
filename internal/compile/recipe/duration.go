// SPDX-License-Identifier: Apache-2.0

package recipe

import "github.com/roux-engine/roux/internal/plan"

// ParseDuration returns the milliseconds of a duration in the syntax of definitions and
// flags; see [plan.ParseDuration].
func ParseDuration(text string) (ms int64, err error) { return plan.ParseDuration(text) }
