// SPDX-License-Identifier: Apache-2.0

//go:build !small

package docpage

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
)

// meanings says what the event of each type means. A test compares it with the one table of
// types, that of package journal.
var meanings = map[string]string{
	"run.started":        "The run exists, with its input, its plan and what it holds of the account's credits.",
	"run.status.changed": "The run has another status, or its verdict is known and it is ending.",
	"run.completed":      "The run has completed, with its outputs. The stream ends.",
	"run.failed":         "The run has failed. The stream ends.",
	"run.cancelled":      "The run was cancelled. The stream ends.",
	"run.timed_out":      "The run has expired. The stream ends.",
	"run.recovered":      "A process has taken the run up again after an interruption.",
	"run.resumed":        "A child run that has ended goes on, as another attempt of the step that started it. It comes after run.retried.",
	"run.signalled":      "The run was sent a signal.",
	"run.retried":        "A new generation of the run begins.",
	"run.limits.raised":  "A retry has raised limits of the run.",
	"run.paused":         "No step begins until the run is unpaused.",
	"run.unpaused":       "Steps begin again.",
	"run.extended":       "A child run has more credits, steps or memory of its parent.",
	"run.pinned":         "What an expression has named stands for a recipe from here on, in the whole tree of runs.",
	"run.child_started":  "A step has started the run of another recipe.",
	"run.child_extended": "A child run may use more credits, steps or memory.",
	"run.child_ended":    "A child run has ended.",
	"credits.estimated":  "A new estimate of what the run costs.",
	"credits.reserved":   "Credits of the account are held for the run.",
	"credits.extended":   "More credits are held.",
	"credits.settled":    "What the run has cost is paid, and the rest is free again.",
	"node.ready":         "A step waits for nothing any more.",
	"node.queued":        "A step waits for a slot.",
	"node.blocked":       "A step waits for credits.",
	"node.started":       "An attempt of a step begins, or the scope of a step opens.",
	"node.progress":      "How far a step is.",
	"node.log":           "A line that an action logged.",
	"node.stream.delta":  "A piece of text that an action streams; deltaIndex is 0, 1, 2 … for each step instance, over all attempts.",
	"node.preview":       "What an action has so far.",
	"node.waiting":       "A step waits for a signal, a time or an external job.",
	"node.retried":       "An attempt has failed or was lost, and the step is tried again.",
	"node.completed":     "A step has completed, with its output.",
	"node.failed":        "A step has failed.",
	"node.timed_out":     "A step has failed because its time was over.",
	"node.skipped":       "A step does not run.",
	"node.cancelled":     "A step was cancelled.",
	"node.invalidated":   "A retry has made what a step did void: it runs again.",
	"node.ignored":       "A result came after the step had settled.",
	"node.compensated":   "What a step did was undone, or that has failed.",
	"node.charged":       "What an attempt has cost.",
	"moderation.passed":  "Moderators have passed an input or output of a step.",
	"moderation.flagged": "A moderator has flagged an input or output of a step; phase and categories say what.",
	"node.cached":        "An attempt has the result of an earlier one, and its action is not called.",
	"contract.violated":  "An input or output does not follow its schema.",
	"run.changed":        "A run has another status.",
	"run.deleted":        "A run is no longer shown.",
	"credits.entry":      "An entry of the ledger.",
	"credits.notice":     "The balance has fallen below a threshold, or a limit was reached.",
	"heartbeat":          "Nothing has happened; it has no number and does not move the cursor.",
	"reset":              "The stream ends early. Connect again with afterEventId; code says why.",
	"subscribed":         "The socket follows the run.",
	"unsubscribed":       "The socket does not follow the run any more.",
	"ended":              "Nothing follows for the run.",
	"pong":               "The answer to ping.",
	"error":              "A message of the client was refused.",
	"subscribe":          "Follow a run after an event.",
	"unsubscribe":        "Follow a run no longer.",
	"ping":               "Ask for pong.",
}

type object = map[string]any

func ref(to string) object { return object{"$ref": "#/" + to} }

// AsyncAPI returns the AsyncAPI document of the streams of a server, as JSON.
func AsyncAPI(release string) ([]byte, error) { return json.Marshal(asyncDocument(release)) }

func asyncDocument(release string) object {
	types := journal.Types()
	flow := slices.DeleteFunc(journal.FlowTypes(), func(name string) bool { return name == "heartbeat" || !slices.Contains(types, name) })
	feed := []string{"run.changed", "run.deleted", "credits.entry", "credits.notice"}
	ends := []string{"heartbeat", "reset"}
	fromSocket := []string{"subscribed", "unsubscribed", "ended", "pong", "error"}
	toSocket := []string{"subscribe", "unsubscribe", "ping"}

	messages := object{}
	add := func(schema string, names []string) {
		for _, name := range names {
			messages[name] = object{"name": name, "title": name, "summary": meanings[name], "contentType": "application/json", "payload": ref("components/schemas/" + schema)}
		}
	}
	add("Event", types)
	add("Change", feed)
	add("Notice", append(ends, fromSocket...))
	add("Request", toSocket)

	run := object{"id": object{"description": "The id of the run."}}
	channels, operations := object{}, object{}
	channel := func(name, address, title string, parameters object, sends, receives []string) {
		list := object{}
		refs := func(names []string) (out []object) {
			for _, n := range names {
				list[n] = ref("components/messages/" + n)
				out = append(out, ref("channels/"+name+"/messages/"+n))
			}
			return out
		}
		operations[name] = object{"action": "send", "channel": ref("channels/" + name), "title": title, "messages": refs(sends)}
		if receives != nil {
			operations[name+"Requests"] = object{"action": "receive", "channel": ref("channels/" + name), "title": "What a client asks of the socket", "messages": refs(receives)}
		}
		c := object{"address": address, "title": title, "messages": list}
		if parameters != nil {
			c["parameters"] = parameters
		}
		channels[name] = c
	}
	channel("executionEvents", "/v1/recipe-executions/{id}/events", "The events of a run (server-sent events)", run, append(slices.Clone(types), ends...), nil)
	channel("jobEvents", "/jobs/{id}/events", "The events of a run in the words of jobs (server-sent events)", run, append(slices.Clone(types), ends...), nil)
	channel("flowEvents", "/execute/workflows/{id}/events", "The events that a client of the flow source knows (server-sent events); others with types=", run, append(flow, ends...), nil)
	channel("feed", "/v1/feed", "The changes of the account (server-sent events)", nil, append(feed, ends...), nil)
	channel("socket", "/v1/socket", "The events of many runs (WebSocket)", nil, slices.Concat(types, ends, fromSocket), toSocket)
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Roux", "version": release,
			"description": "Live events of runs and accounts. A stream begins after the event that afterEventId or Last-Event-ID names, so that a client that connects again misses nothing and gets nothing twice. Requests carry a key as they do for the operations of /openapi.json.",
			"license":     object{"name": "Apache-2.0"},
		},
		"defaultContentType": "application/json",
		"channels":           channels,
		"operations":         operations,
		"components":         object{"messages": messages, "schemas": asyncSchemas()},
	}
}

// asyncSchemas are the schemas of payloads. Values of runs have any type: only recipes know
// them.
func asyncSchemas() object {
	text, number := object{"type": "string"}, object{"type": "integer", "minimum": 0}
	id := object{"type": "integer", "minimum": 1}
	at := object{"type": "string", "format": "date-time"}
	described := func(schema object, words string) object {
		out := maps.Clone(schema)
		out["description"] = words
		return out
	}
	return object{
		"Event": object{
			"type": "object", "required": []string{"eventId", "sequence", "type", "runId", "timestamp", "payload"},
			"properties": object{
				"eventId":    described(id, "1, 2, 3 … within the run, without a gap. Frames have it as id."),
				"sequence":   described(id, "The same as eventId."),
				"type":       text,
				"runId":      text,
				"workflowId": described(text, "The recipe that the run executes."),
				"timestamp":  at,
				"correlation": object{"type": "object", "required": []string{"phase"}, "properties": object{
					"traceId":       described(object{"type": "string", "pattern": "^[0-9a-f]{32}$"}, "The trace of the tree of runs."),
					"parentEventId": described(id, "The event that caused this one."),
					"wave":          described(number, "Of the step."),
					"phase":         object{"enum": []string{"engine", "transport", "client"}},
				}},
				"payload": object{"type": "object", "properties": object{
					"nodeId":          described(text, "The path of the step; missing in events of the run."),
					"step":            described(text, "The same as nodeId."),
					"attempt":         described(id, "1, 2, 3 … within the step instance."),
					"deltaIndex":      described(number, "Of the last piece of text in this frame."),
					"firstDeltaIndex": described(number, "Of the first one, in frames that join several."),
					"text":            text,
					"status":          text,
					"error":           object{"type": "object", "required": []string{"code"}, "properties": object{"code": text, "message": text, "cause": text}},
				}},
			},
		},
		"Change": object{
			"type": "object", "required": []string{"number", "type", "timestamp"},
			"properties": object{
				"number":    described(id, "1, 2, 3 … within the account, without a gap. Frames have it as id."),
				"type":      text,
				"timestamp": at, "completedAt": at,
				"runId": text, "rootRunId": described(text, "Of a child run."), "recipe": text, "status": text, "state": text, "code": text,
				"quarantined": object{"type": "boolean"},
				"entry":       described(id, "The number of the entry."), "kind": text,
				"limitSource": text, "limit": number, "amount": object{"type": "integer"},
			},
		},
		"Notice": object{
			"type": "object", "required": []string{"type"},
			"properties": object{
				"type": text, "runId": text, "timestamp": at, "code": text, "message": text, "remedy": text,
				"afterEventId": described(number, "The cursor with which to read on."),
			},
		},
		"Request": object{
			"type": "object", "required": []string{"type"}, "additionalProperties": false,
			"properties": object{
				"type": text, "runId": text,
				"afterEventId": described(number, "The last event that the client has."),
				"types":        described(text, "Only events of these types, separated by commas; a type may end with .* ."),
				"coalesce":     described(object{"type": "boolean", "default": true}, "false sends every delta as it is stored."),
			},
		},
	}
}
