// SPDX-License-Identifier: Apache-2.0

//go:build small

package provider

import "github.com/roux-engine/roux/action"

// keeps is the service as the keeper of jobs takes it: a small binary follows no jobs.
func (j *jobService) keeps() action.Service { return j }
