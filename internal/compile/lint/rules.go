// SPDX-License-Identifier: Apache-2.0

package lint

import "slices"

// A Rule is a kind of remark that an ignore can name.
type Rule struct {
	Name string `json:"rule"`
	What string `json:"what"` // it is about
	Why  string `json:"why"`
	// Bad is a recipe that has it, without name and description, and Good the same without it. A warning
	// that depends on more than a text has none.
	Bad  string `json:"example,omitempty"`
	Good string `json:"fix,omitempty"`
	// Also is set for the warnings of compile, which `roux validate` has, too.
	Also bool `json:"validate"`
}

// Rules returns all rules: the advice first, then the warnings of compile, each sorted by name.
func Rules() []Rule { return slices.Concat(adviceRules, ownRules, compileRules) }

// Find returns the rule of that name, or nil.
func Find(name string) *Rule {
	for _, r := range Rules() {
		if r.Name == name {
			return &r
		}
	}
	return nil
}

// Names returns the names of all rules.
func Names() (names []string) {
	for _, r := range Rules() {
		names = append(names, r.Name)
	}
	return names
}

// ownRules are about the comments that ignore rules.
var ownRules = []Rule{
	{
		Name: "unknown-ignore", What: "A comment ignores a rule that does not exist, or names none.", Why: "A misspelt comment hides nothing, and its author believes that it does.",
		Bad:  "steps:\n  - {id: one, transform: {expression: '1'}} # roux:ignore unused-outputs\n",
		Good: "steps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
	{
		Name: "unused-ignore", What: "A comment ignores what is not there.", Why: "It would hide the next problem of that kind, which nobody has looked at.",
		Bad:  "steps:\n  # roux:ignore missing-timeout\n  - {id: one, transform: {expression: '1'}}\n",
		Good: "steps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
}

var adviceRules = []Rule{
	{
		Name: "deep-nesting", What: "A step is more than four levels deep in other steps.", Why: "Conditions in loops in branches are hard to follow, in the text and in a trace. A recipe of its own has inputs and outputs that say what goes in and out.",
		Bad:  "inputSchema: {type: object, required: [a], properties: {a: {type: boolean}}}\nsteps:\n  - id: one\n    condition:\n      expression: input.a\n      then:\n        - id: two\n          condition:\n            expression: input.a\n            then:\n              - id: three\n                condition:\n                  expression: input.a\n                  then:\n                    - id: four\n                      condition:\n                        expression: input.a\n                        then: [{id: five, fail: {message: deep}}]\n",
		Good: "inputSchema: {type: object, required: [a], properties: {a: {type: boolean}}}\nsteps:\n  - id: one\n    condition:\n      expression: input.a\n      then: [{id: two, fail: {message: flat}}]\n",
	},
	{
		Name: "long-expression", What: "An expression has more than 1,000 characters.", Why: "When it fails, the message names a place in it that is hard to find; the values of transforms are in the trace.",
	},
	{
		Name: "missing-credit-estimation", What: "A loop calls an action that costs credits, and the recipe has no creditEstimation.", Why: "What a run reserves at its start does not include what the loop costs, so an account can run out of credits in the middle of it.",
		Bad:  "steps:\n  - id: each\n    loop:\n      over: files\n      as: file\n      steps: [{id: read, action: {name: pdf-to-markdown}, inputBindings: {file: file.hash}}]\n",
		Good: "creditEstimation: {strategy: calculated, formula: 5 * fileCount, maxCredits: 500}\nsteps:\n  - id: each\n    loop:\n      over: files\n      as: file\n      steps: [{id: read, action: {name: pdf-to-markdown}, inputBindings: {file: file.hash}}]\n",
	},
	{
		Name: "missing-description", What: "The recipe has no description.", Why: "Lists of recipes, the pages of the service and other people show it.",
	},
	{
		Name: "missing-input-schema", What: "The recipe reads its input and has no inputSchema.", Why: "A start with a missing or misspelt field is accepted, and the run fails at the step that reads it, after the steps before have cost time and credits.",
		Bad:  "steps:\n  - {id: greet, transform: {expression: \"'Hello ' + input.name\"}}\n",
		Good: "inputSchema: {type: object, required: [name], properties: {name: {type: string}}}\nsteps:\n  - {id: greet, transform: {expression: \"'Hello ' + input.name\"}}\n",
	},
	{
		Name: "missing-retry", What: "A step calls a service over the network, is attempted once, and nothing handles its failure.", Why: "Services fail for a moment now and then. Another attempt has the same effect key, so a service that honours it does nothing twice.",
		Bad:  "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/'}}}\n",
		Good: "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/'}}, retryPolicy: {maxAttempts: 3}}\n",
	},
	{
		Name: "missing-step-id", What: "A step has no id.", Why: "It is called by its place in the list, which changes when a step is added above it: in the journal, in messages and in what `roux runs retry --from` takes.",
		Bad:  "steps:\n  - transform: {expression: '1'}\n",
		Good: "steps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
	{
		Name: "missing-timeout", What: "A step calls a service over the network and has no timeout of its own.", Why: "An attempt may take ten minutes by default, and a service that is silent holds the run for that long, at each attempt.",
		Bad:  "steps:\n  - {id: ask, action: {name: llm, parameters: {prompt: Hello, model: small}}, retryPolicy: {maxAttempts: 3}}\n",
		Good: "steps:\n  - {id: ask, action: {name: llm, parameters: {prompt: Hello, model: small}}, retryPolicy: {maxAttempts: 3}, timeout: 1m}\n",
	},
	{
		Name: "missing-wait-timeout", What: "A step waits for a signal or for a person, and for as long as the run may live.", Why: "If nobody answers, the run expires as a whole, with everything it has done.",
		Bad:  "steps:\n  - {id: ask, wait: {signal: approve}}\n",
		Good: "steps:\n  - {id: ask, wait: {signal: approve, timeout: 24h}}\n",
	},
	{
		Name: "plain-http", What: "A text names a host over http:// that is not this machine.", Why: "What is sent, also keys, can be read and changed on the way.",
		Bad:  "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'http://example.com/'}}, retryPolicy: {maxAttempts: 3}}\n",
		Good: "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/'}}, retryPolicy: {maxAttempts: 3}}\n",
	},
	{
		Name: "plain-secret", What: "A parameter looks like a secret: by its name, such as token or password, or by its form.", Why: "Texts of recipes are read, copied and kept in repositories; the input of a step is in the journal. A secret that is named is in neither.",
		Bad:  "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/', headers: {authorization: abcdefgh}}}, retryPolicy: {maxAttempts: 3}}\n",
		Good: "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/', headers: {authorization: \"{{ secret('EXAMPLE') }}\"}}}, retryPolicy: {maxAttempts: 3}}\n",
	},
	{
		Name: "repeated-steps", What: "Three steps or more, one after the other, are in the recipe twice, up to the names that they give.", Why: "A change of one of them is forgotten in the other. A recipe of its own has them once, and can be tested alone.",
		Bad:  "steps:\n  - {id: a1, transform: {expression: '1', outputBinding: x}}\n  - {id: a2, transform: {expression: 'x + 1', outputBinding: y}}\n  - {id: a3, transform: {expression: 'y + 1', outputBinding: z}}\n  - {id: b1, transform: {expression: '1', outputBinding: u}}\n  - {id: b2, transform: {expression: 'u + 1', outputBinding: v}}\n  - {id: b3, transform: {expression: 'v + 1', outputBinding: w}}\n",
		Good: "steps:\n  - {id: a1, transform: {expression: '1', outputBinding: x}}\n  - {id: a2, transform: {expression: 'x + 1', outputBinding: y}}\n",
	},
	{
		Name: "too-many-steps", What: "The recipe has more than 50 steps.", Why: "Nobody has an overview of it, and parts of it cannot be tested, run or changed alone.",
	},
	{
		Name: "unbounded-loop", What: "A loop is over a list of the input, and neither the inputSchema nor the limits of the recipe bound its length.", Why: "A list of 100,000 items by mistake costs 100,000 times as much. A bound refuses the start.",
		Bad:  "inputSchema: {type: object, required: [names], properties: {names: {type: array, items: {type: string}}}}\nsteps:\n  - {id: each, loop: {over: input.names, steps: [{id: greet, transform: {expression: \"'Hello ' + item\"}}]}}\n",
		Good: "inputSchema: {type: object, required: [names], properties: {names: {type: array, maxItems: 100, items: {type: string}}}}\nsteps:\n  - {id: each, loop: {over: input.names, steps: [{id: greet, transform: {expression: \"'Hello ' + item\"}}]}}\n",
	},
	{
		Name: "unpinned-lens", What: "A step names a lens without its version.", Why: "Whoever puts another version of the lens changes what this recipe does, without a word.",
	},
	{
		Name: "unpinned-model", What: "A step asks a model and does not say which one.", Why: "Another default of the server is another answer and another price.",
		Bad:  "steps:\n  - {id: ask, action: {name: llm, parameters: {prompt: Hello}}, retryPolicy: {maxAttempts: 3}, timeout: 1m}\n",
		Good: "steps:\n  - {id: ask, action: {name: llm, parameters: {prompt: Hello, model: small}}, retryPolicy: {maxAttempts: 3}, timeout: 1m}\n",
	},
	{
		Name: "unpinned-recipe", What: "A step runs a registered recipe and names no version.", Why: "The newest version counts when a run starts, also one that takes other inputs.",
		Bad:  "steps:\n  - {id: report, recipe: {ref: pdf-report}}\n",
		Good: "steps:\n  - {id: report, recipe: {ref: pdf-report@1}}\n",
	},
	{
		Name: "unread-error", What: "The run goes on when a step fails, and nothing reads that it has.", Why: "The failure is in the journal only; the result of the run looks as if nothing had happened.",
		Bad:  "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/'}}, continue_on_error: true}\n",
		Good: "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/'}}, continue_on_error: true}\noutputs: {fetched: 'steps.fetch.status == \"completed\"'}\n",
	},
	{
		Name: "unused-output", What: "A transform computes what nothing reads.", Why: "It is work and a row in the journal for nothing, or a reference that was forgotten.",
		Bad:  "steps:\n  - {id: one, transform: {expression: '1'}}\n  - {id: two, transform: {expression: '2', outputBinding: two}}\n",
		Good: "steps:\n  - {id: two, transform: {expression: '2', outputBinding: two}}\n",
	},
}

// compileRules are the warnings of package compile.
var compileRules = []Rule{
	{Also: true, Name: "cache-effect", What: "A step with a cache calls an action that is attempted at most once.", Why: "Such an action probably has an effect, which a cached result does not have again."},
	{
		Also: true, Name: "cache-never", What: "The input or the key of a step with a cache has now() or uuid().", Why: "It is another value in each run, so no cached result is ever used.",
		Bad:  "steps:\n  - {id: count, action: {name: word-count}, inputBindings: {text: string(now())}, cache: true}\n",
		Good: "steps:\n  - {id: count, action: {name: word-count, parameters: {text: some words}}, cache: true}\n",
	},
	{Also: true, Name: "cache-price", What: "A cached result has a higher price than a call.", Why: "No more than the price of a call is charged."},
	{
		Also: true, Name: "constant-condition", What: "A condition is always true, or always false.", Why: "One of the sides never runs.",
		Bad:  "steps:\n  - {id: one, when: '1 > 2', transform: {expression: '1'}}\n",
		Good: "steps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
	{
		Also: true, Name: "deprecated", What: "The recipe is deprecated.", Why: "Its author has a replacement.",
		Bad:  "status: deprecated\nsteps:\n  - {id: one, transform: {expression: '1'}}\n",
		Good: "steps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
	{Also: true, Name: "fallback-not-moderated", What: "The output of a step is moderated, and that of its fallback is not.", Why: "The output of the fallback becomes that of the step."},
	{Also: true, Name: "file-type", What: "A file of one type is given to an action that takes others.", Why: "The step fails when it runs."},
	{
		Also: true, Name: "hides-name", What: "What a loop accumulates has the name of a binding or loop variable around it.", Why: "Inside the loop the other value cannot be read.",
		Bad:  "steps:\n  - {id: first, transform: {expression: '1', outputBinding: n}}\n  - {id: sum, loop: {over: '[n]', accumulate: {as: n, initial: 0, expression: n + item}, steps: [{id: one, transform: {expression: n}}]}}\n",
		Good: "steps:\n  - {id: first, transform: {expression: '1', outputBinding: n}}\n  - {id: sum, loop: {over: '[n]', accumulate: {as: sum, initial: 0, expression: sum + item}, steps: [{id: one, transform: {expression: sum}}]}}\n",
	},
	{
		Also: true, Name: "limit-higher", What: "A step allows its recipe more than this recipe may have itself.", Why: "The lower limit counts.",
		Bad:  "limits: {max_total_steps: 10}\nsteps:\n  - {id: inner, recipe: {inline: {name: inner, steps: [{id: one, transform: {expression: '1'}}]}, limits: {max_total_steps: 20}}}\n",
		Good: "limits: {max_total_steps: 30}\nsteps:\n  - {id: inner, recipe: {inline: {name: inner, steps: [{id: one, transform: {expression: '1'}}]}, limits: {max_total_steps: 20}}}\n",
	},
	{
		Also: true, Name: "maybe-unbound", What: "An expression reads a name that has no value on some paths.", Why: "The step fails there.",
		Bad:  "inputSchema: {type: object, properties: {a: {type: boolean}}}\nsteps:\n  - {id: one, when: has(input.a), transform: {expression: '1', outputBinding: x}}\n  - {id: two, transform: {expression: x + 1}}\n",
		Good: "inputSchema: {type: object, properties: {a: {type: boolean}}}\nsteps:\n  - {id: one, transform: {expression: 'has(input.a) ? 1 : 0', outputBinding: x}}\n  - {id: two, transform: {expression: x + 1}}\n",
	},
	{Also: true, Name: "never-reminds", What: "A reminder comes after the timeout of its approval.", Why: "Nobody is ever reminded."},
	{
		Also: true, Name: "never-retryable", What: "A retry policy names an error that is never retried.", Why: "Another attempt fails the same way.",
		Bad:  "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/'}}, retryPolicy: {maxAttempts: 2, retryableErrors: [INPUT_INVALID]}}\n",
		Good: "steps:\n  - {id: fetch, action: {name: http, parameters: {url: 'https://example.com/'}}, retryPolicy: {maxAttempts: 2, retryableErrors: [timeout]}}\n",
	},
	{Also: true, Name: "no-effect", What: "A moderation says how streamed text waits, and the output is not moderated.", Why: "Nothing waits."},
	{
		Also: true, Name: "retry-never", What: "A retry policy has no maxAttempts.", Why: "Nothing is retried.",
		Bad:  "steps:\n  - {id: count, action: {name: word-count, parameters: {text: one}}, retryPolicy: {initialDelay: 1s}}\n",
		Good: "steps:\n  - {id: count, action: {name: word-count, parameters: {text: one}}, retryPolicy: {maxAttempts: 3, initialDelay: 1s}}\n",
	},
	{Also: true, Name: "secret-not-found", What: "A parameter names a secret that is not kept here.", Why: "The step fails where it is not kept either."},
	{
		Also: true, Name: "substitute-default", What: "A step runs with empty text in place of what failed steps should have given.", Why: "It cannot tell an empty answer from a failed step.",
		Bad:  "steps:\n  - {id: one, transform: {expression: '1'}, on_parent_failure: substitute_default}\n",
		Good: "steps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
	{Also: true, Name: "template-in-cel", What: "A template writes a part of an expression that an action evaluates.", Why: "A value with a quote in it changes the expression."},
	{Also: true, Name: "timeout-capped", What: "A timeout is longer than the server allows.", Why: "That of the server counts."},
	{
		Also: true, Name: "timeout-longer", What: "A timeout is longer than another one that ends the step, or the run, before.", Why: "It never comes to it.",
		Bad:  "ttl: 1m\nsteps:\n  - {id: count, action: {name: word-count, parameters: {text: one}}, timeout: 5m}\n",
		Good: "ttl: 10m\nsteps:\n  - {id: count, action: {name: word-count, parameters: {text: one}}, timeout: 5m}\n",
	},
	{Also: true, Name: "undefined-field", What: "An expression reads a field of `workflow` that the recipe does not give a value.", Why: "The step fails when it is read."},
	{
		Also: true, Name: "unknown-error", What: "A retry policy names an error that Roux does not have.", Why: "It matches only if an action returns it.",
		Bad:  "steps:\n  - {id: count, action: {name: word-count, parameters: {text: one}}, retryPolicy: {maxAttempts: 2, retryableErrors: [SERVICE_UNAVAILABEL]}}\n",
		Good: "steps:\n  - {id: count, action: {name: word-count, parameters: {text: one}}, retryPolicy: {maxAttempts: 2, retryableErrors: [SERVICE_UNAVAILABLE]}}\n",
	},
	{
		Also: true, Name: "unknown-variable", What: "The formula of the estimation reads a name that the recipe does not have.", Why: "Every run reserves maxCredits.",
		Bad:  "creditEstimation: {strategy: calculated, formula: 2 * pages, maxCredits: 9}\nsteps:\n  - {id: one, transform: {expression: '1'}}\n",
		Good: "creditEstimation: {strategy: calculated, formula: 2 * pageCount, maxCredits: 9}\nsteps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
	{
		Also: true, Name: "unreachable", What: "A step comes after one that always fails.", Why: "It never runs.",
		Bad:  "steps:\n  - {id: stop, fail: {message: never}}\n  - {id: one, transform: {expression: '1'}}\n",
		Good: "steps:\n  - {id: one, transform: {expression: '1'}}\n",
	},
	{
		Also: true, Name: "unused-binding", What: "Nothing reads what an outputBinding names.", Why: "It is kept in memory for nothing, or a reference was forgotten.",
		Bad:  "steps:\n  - {id: one, transform: {expression: '1', outputBinding: x}}\n  - {id: two, transform: {expression: '2', outputBinding: y}}\noutputs: {y: y}\n",
		Good: "steps:\n  - {id: two, transform: {expression: '2', outputBinding: y}}\noutputs: {y: y}\n",
	},
}
