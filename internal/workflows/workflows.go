// SPDX-License-Identifier: Apache-2.0

// Package workflows serves recipes and their runs over HTTP in the words of graphs of nodes: a workflow
// has one run at a time, and its statuses are in capitals (R1).
//
// It decides what a trigger does, which run of a workflow is shown, and what requests and answers look
// like. A workflow is a version of a recipe, and everything about its runs is decided where it is for
// recipes.
package workflows

import (
	"context"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// Config is what the operations are made of. All fields are required.
type Config struct {
	Recipes   *registry.Recipes
	Schedules *scheduler.Scheduler // of runs with a key
	Starts    *starts.Starter
	Engine    *engine.Engine
	Runs      interface {
		Search(ctx context.Context, q store.Query) (heads []store.Head, next string, err error)
	}
	// Show returns a run of the account of a request with all its steps.
	Show func(ctx context.Context, run string, outputs bool) (*resource.Execution, error)
}

// Register adds the operations to a router. accepts are the media types of texts. A small binary, which
// reads recipes only, has none of them.
func Register(rt *rest.Router, cfg Config, accepts []string) { register(rt, cfg, accepts) }
