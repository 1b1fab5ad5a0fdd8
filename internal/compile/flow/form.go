// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

type m = map[string]any

// kinds are the fields that say what a node does.
var kinds = []string{"lens_id", "action", "condition", "parallel", "transform", "loop", "wait", "fail", "recipe"}

var rules = withKinds(map[string]form.Rule{
	"Head.name":    {Doc: "Name under which the workflow is registered and started.", Def: "that of the file without its extensions", Pattern: form.Text, Example: "summarize"},
	"Head.dialect": {Doc: "Dialect of the text; without it, the keys determine the dialect.", Def: "determined by the keys", Enum: []string{"flow"}, Example: "flow"},
	"Settings.order": {
		Doc: "Whether a node without edges into it waits for the node before it.", Def: "none", Enum: []string{"sequence", "none"}, Example: "none",
	},
	"Settings.scheduling":          {Doc: "When a node begins: as soon as what it depends on has settled, or with its wave, after all nodes of the waves before.", Def: "eager", Enum: []string{"eager", "waves"}, Example: "waves"},
	"Settings.failure_policy":      {Doc: "What a failed node means for those that do not depend on it: drain carries them out, fail_fast cancels them.", Def: "drain", Enum: []string{"fail_fast", "drain"}, Example: "fail_fast"},
	"Settings.on_upstream_failure": {Doc: "What happens to nodes that depend on a failed one and propagate it.", Def: "fail", Enum: []string{"skip", "fail"}, Example: "skip"},
	"Settings.result_rule":         {Doc: "When the run is completed: if all nodes that no other depends on are completed or skipped, or only if no node has failed.", Def: "leaves", Enum: []string{"strict", "leaves"}, Example: "strict"},
	"Settings.result":              {Doc: "What the result is without outputs and outputSchema: what outputBinding names, or the outputs of the nodes by their ids.", Def: "steps", Enum: []string{"bindings", "steps"}, Example: "bindings"},

	"Workflow.nodes": {Doc: "The nodes. Those that no edges connect run at the same time.", Required: true, Unless: "extends", MinItems: 1, Example: []any{m{"id": "one", "transform": m{"expression": "1"}}}},
	"Workflow.edges": {Doc: "The edges between the nodes. Their order is that of merged values.", Required: true, Unless: "extends", Example: []any{m{"source_node_id": "one", "target_node_id": "two", "target_param_label": "text"}}},

	"Node.id":         {Doc: "Name of the node, unique in the workflow.", Required: true, Pattern: recipe.ID, Example: "summary"},
	"Node.lens_id":    {Doc: "Id of the lens, a registered prompt, with which the node asks a model.", Def: "none", Pattern: form.Text, Example: "summarize"},
	"Node.version_id": {Doc: "Version of the lens; null for the current one.", Def: "the current one when the run starts", Null: true, Pattern: form.Text, Example: "2"},
	"Node.label":      {Doc: "Name of the node for people, and of its value in a json_object.", Def: "the id", Null: true, Pattern: form.Text, Example: "Summary"},
	"Node.ordinal":    form.Number("Place of the node in lists for people.", "0", 0, 1_000_000, 1),
	"Node.config":     {Doc: "How the node is carried out.", Def: "the defaults of its fields", Example: m{"timeout_ms": 30000}},
	"Node.dependsOn":  {Doc: "Ids of nodes that the node waits for, besides those that edges lead from.", Def: "none", Item: &form.Rule{Pattern: recipe.ID}, Example: []any{"one"}},

	"Config.model":             {Doc: "Model that is asked.", Def: "that of the lens, else the default of the account", Pattern: form.Text, Example: "small"},
	"Config.parameters":        {Doc: "Other inputs of the action llm; text in them may contain {{ templates }}.", Def: "none", Example: m{"maxTokens": 500}},
	"Config.merge":             {Doc: "How the values of edges with one label become one, where the edges do not say it: the last of them, their texts with an empty line between, the JSON of a list, or the JSON of an object with the labels of their nodes.", Def: "last_write_wins", Enum: recipe.Merges, Example: "concat"},
	"Config.moderation":        {Doc: "Has moderators look at the node's input, its output or both before anything of it is shown or used.", Def: "none", Short: "phase", Example: "both"},
	"Config.timeout_ms":        form.Number("Milliseconds that one attempt may take.", "600000", 1, 31_536_000_000, 30_000),
	"Config.on_parent_failure": {Doc: "What to do when a node this one depends on has failed or was cancelled: skip this one, fail it, or carry it out with empty text for what is missing.", Def: "propagate", Enum: []string{"skip", "propagate", "substitute_default"}, Example: "skip"},
	"Config.retry":             {Doc: "When and how often to try again.", Def: "one attempt", Example: m{"attempts": 3, "retry_on": []any{"timeout"}}},

	"Retry.attempts":           form.Number("Attempts in total, the first included.", "1", 1, 1000, 3),
	"Retry.backoff_ms":         form.Number("Milliseconds before the second attempt.", "500", 0, 31_536_000_000, 1000),
	"Retry.max_backoff_ms":     form.Number("Most milliseconds of a pause.", "8000", 0, 31_536_000_000, 30_000),
	"Retry.backoff_multiplier": form.Number("Factor from one pause to the next.", "2", 1, 100, 1.5),
	"Retry.jitter":             form.Number("Part of a pause that is random.", "0.5", 0, 1, 0),
	"Retry.retry_on":           {Doc: "Causes of failures to try again after: timeout, provider_error, rate_limit, contract_violated, or codes.", Def: "those for which another attempt can succeed", Item: &form.Rule{Pattern: form.Text}, Example: []any{"timeout", "rate_limit"}},

	"Edge.id":                 {Doc: "Name of the edge.", Def: "none", Pattern: form.Text, Example: "e1"},
	"Edge.source_node_id":     {Doc: "Id of the node that the edge leads from.", Required: true, Pattern: recipe.ID, Example: "one"},
	"Edge.target_node_id":     {Doc: "Id of the node that the edge leads to, which waits for the other.", Required: true, Pattern: recipe.ID, Example: "two"},
	"Edge.source_output_key":  {Doc: "Field of the source's output that is carried; output is the answer of a node with a lens, and the whole output of another.", Def: "output", Pattern: form.Text, Example: "json"},
	"Edge.target_param_label": {Doc: "Placeholder of the target's lens, or input of its action or recipe, that gets the value.", Def: "the edge carries no value", Pattern: form.Text, Example: "text"},
	"Edge.merge_strategy":     {Doc: "How the values of edges with one label become one.", Def: "that of the target's config", Enum: recipe.Merges, Example: "array"},
})

// withKinds adds the rules of the kinds of steps that a node may be.
func withKinds(rules map[string]form.Rule) map[string]form.Rule {
	for _, kind := range kinds[1:] {
		rules["Node."+kind] = recipe.Table.Rules["Step."+kind]
	}
	return rules
}

// Form is how a workflow is written.
var Form = form.New[Workflow](recipe.Table.With(&form.Table{
	Rules:       rules,
	Constraints: map[string][]form.Constraint{"Node": {{OneOf: kinds}}},
	Nouns:       map[string]string{"Workflow": "a workflow", "Node": "a node", "Config": "the config of a node", "Retry": "a retry policy", "Edge": "an edge"},
	Before:      map[string][][2]string{"Workflow": {{"dialect", "name"}, {"inputSchema", "nodes"}, {"inputPolicy", "nodes"}}, "Node": {{"when", "action"}, {"dependsOn", "action"}}},
}))
