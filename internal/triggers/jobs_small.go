// SPDX-License-Identifier: Apache-2.0

//go:build small

package triggers

import (
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/rest"
)

// registerJobs registers nothing: a small binary lists no external jobs.
func registerJobs(*rest.Router, *jobs.Keeper) {}
