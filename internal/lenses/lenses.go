// SPDX-License-Identifier: Apache-2.0

// Package lenses serves the prompt templates of accounts over HTTP.
//
// It decides what requests and answers look like. What a lens may be, and which version is the
// current one, is decided by package lens.
package lenses

import (
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
)

// Register adds the operations to a router. A small binary has none of them.
func Register(rt *rest.Router, r *registry.Recipes) { register(rt, r) }
