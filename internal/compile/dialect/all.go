// SPDX-License-Identifier: Apache-2.0

//go:build !small

package dialect

import (
	"github.com/roux-engine/roux/internal/compile/dag"
	"github.com/roux-engine/roux/internal/compile/flow"
	"github.com/roux-engine/roux/internal/compile/pipeline"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

var all = []*Dialect{recipes, {
	Name: "dag", Form: dag.Form,
	What:   "a recipe in the dag dialect: nodes and what they depend on",
	decode: dag.Decode, outer: dag.NameOuter,
	encode: func(r *recipe.Recipe, written bool) (any, error) { return dag.Encode(r, written) },
}, {
	Name: "flow", Form: flow.Form,
	What:   "a recipe in the flow dialect: nodes and the edges between them",
	decode: flow.Decode,
	encode: func(r *recipe.Recipe, _ bool) (any, error) { return flow.Encode(r) },
}, {
	Name: "pipeline", Form: pipeline.Form,
	What:   "a recipe in the pipeline dialect: steps with a name and a type",
	decode: pipeline.Decode, outer: pipeline.NameOuter,
	encode: func(r *recipe.Recipe, written bool) (any, error) { return pipeline.Encode(r, written) },
}}
