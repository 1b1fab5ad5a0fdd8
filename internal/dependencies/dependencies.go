// SPDX-License-Identifier: Apache-2.0

// Package dependencies tells over HTTP what registered recipes use, and what uses them.
//
// It decides what the answer looks like. What a version uses is found when it is compiled, in
// package registry. It changes nothing.
package dependencies

import (
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
)

// Register adds the operation to a router. A small binary does not have it.
func Register(rt *rest.Router, r *registry.Recipes) { register(rt, r) }
