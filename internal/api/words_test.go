// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/telemetry"
)

// sourceText returns the part of the recipe-system source between two of its headings.
func sourceText(t *testing.T, from, to string) string {
	t.Helper()
	path := filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "sources", "recipe-system.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+from+"\n")
	part, _, ok2 := strings.Cut(rest, "\n"+to+"\n")
	if !ok || !ok2 {
		t.Fatalf("%q to %q is not where it was", from, to)
	}
	return part
}

// An exchange is a request of the source with its answer.
type exchange struct {
	method, path, body string
	status             int
	answer             string
}

var (
	requestLine = regexp.MustCompile(`(?m)^(GET|POST|PUT|DELETE) +(/\S+)`)
	statusLine  = regexp.MustCompile(`(?m)^HTTP/1\.1 (\d+)`)
)

// exchanges reads the requests of a text and the answers that follow them.
func exchanges(t *testing.T, text string) (list []exchange) {
	t.Helper()
	found := requestLine.FindAllStringSubmatchIndex(text, -1)
	for i, m := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		part := text[m[0]:end]
		at := statusLine.FindStringSubmatchIndex(part)
		if at == nil {
			t.Fatalf("a request without an answer: %s", part)
		}
		status, _ := strconv.Atoi(part[at[2]:at[3]])
		list = append(list, exchange{text[m[2]:m[3]], text[m[4]:m[5]], object(part[:at[0]]), status, object(part[at[0]:])})
	}
	return list
}

// object is the text from the first brace to its end.
func object(text string) string {
	open := strings.Index(text, "{")
	if open < 0 {
		return ""
	}
	depth := 0
	for i := open; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[open : i+1]
			}
		}
	}
	return text[open:]
}

// leftOut are the parts of a recipe that the source abbreviates. The run has used 45 credits
// when its first step, of 5, has completed and its second is tried again, because the recipe
// inside has completed one step before it failed.
var leftOut = map[string]string{
	"steps": `[
		{"id": "step_1", "name": "inspect", "action": {"name": "measure"}, "outputBinding": "inspection"},
		{"id": "step_2", "condition": {"expression": "inspection.pageCount <= 100",
			"then": [{"id": "step_2a", "recipe": {"inline": {"name": "enlarge", "steps": [
				{"id": "k", "action": {"name": "enlarge"}},
				{"id": "l", "dependsOn": ["k"], "action": {"name": "broken"}}]}},
				"retryPolicy": {"maxAttempts": 3, "initialDelay": "1h", "maxDelay": "1h"}}],
			"else": [{"id": "step_2b", "fail": {}}]}},
		{"id": "step_3", "dependsOn": ["step_2"], "action": {"name": "measure"}}]`,
	"inputSchema": `{"type": "object", "required": ["upscaleFactor"], "additionalProperties": false, "properties": {
		"upscaleFactor": {"type": "integer"}, "enhanceType": {"enum": ["photo", "art"]}}}`,
	"outputSchema":     `{"type": "object"}`,
	"creditEstimation": `{"strategy": "fixed", "fixedCredits": 120, "maxCredits": 1000}`,
}

// sourceActions are those that the recipe calls.
func sourceActions() []action.Action {
	object := json.RawMessage(`{"type":"object"}`)
	lasts := func(low, high string) action.Metadata {
		return action.Metadata{DurationRange: &action.DurationRange{Min: low, Max: high}}
	}
	returns := func(v map[string]any) action.Func {
		return func(context.Context, *action.Task) (action.Result, error) { return action.Result{Output: v}, nil }
	}
	return []action.Action{
		{Name: "measure", Version: "1.0.0", Input: object, Output: object, Cost: 5, Metadata: lasts("10s", "20s"), Run: returns(map[string]any{"pageCount": 7})},
		{Name: "enlarge", Version: "1.0.0", Input: object, Output: object, Cost: 40, Metadata: lasts("1m", "3m"), Run: returns(map[string]any{"ok": true})},
		{Name: "broken", Version: "1.0.0", Input: object, Output: object, Run: func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "down")
		}},
	}
}

// A logged buffer is written by the server while a test reads it.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// line waits for a line with all parts.
func (l *logged) line(t *testing.T, parts ...string) string {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		text := l.b.String()
		l.mu.Unlock()
		for _, line := range strings.Split(text, "\n") {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				return line
			}
		}
	}
	t.Fatalf("no line of the log has %q", parts)
	return ""
}

var (
	isTime     = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	isDuration = regexp.MustCompile(`^PT(\d+H)?(\d+M)?(\d+(\.\d+)?S)?$`)
)

// asSource fails unless an answer has every field of an example with its value. Names in
// known stand for values of this server. Times, and durations that were measured, need only
// the form. Fields that the example does not have are allowed.
func asSource(t *testing.T, where string, got, want any, known map[string]string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s is %v, want an object", where, got)
			return
		}
		for name, v := range want {
			if _, there := m[name]; !there {
				t.Errorf("%s has no %s", where, name)
				continue
			}
			asSource(t, where+"."+name, m[name], v, known)
		}
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			t.Errorf("%s is %v, want %v", where, got, want)
			return
		}
		for i := range want {
			asSource(t, where+"["+strconv.Itoa(i)+"]", list[i], want[i], known)
		}
	case string:
		text, _ := got.(string)
		expected := want
		for name, value := range known {
			expected = strings.ReplaceAll(expected, name, value)
		}
		time := isTime.MatchString(want) && isTime.MatchString(text)
		measured := strings.HasSuffix(where, ".duration") && isDuration.MatchString(want) && isDuration.MatchString(text)
		if text != expected && !time && !measured {
			t.Errorf("%s is %v, want %q", where, got, expected)
		}
	default:
		if got != want {
			t.Errorf("%s is %v, want %v", where, got, want)
		}
	}
}

func sourceJSON(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// X187, X191, X193, X99, X100, X202, X153, X223, X225: the requests of the source, sent as they are
// written, get the answers, log lines and metrics that it shows. Ids, times and measured
// durations differ.
func TestX191_TheSourceWordForWord(t *testing.T) {
	asked := exchanges(t, sourceText(t, "Request/Response Examples", "Error Handling"))
	if len(asked) != 3 {
		t.Fatalf("the source has %d examples of requests, want 3", len(asked))
	}
	log := &logged{}
	watched := telemetry.New(telemetry.Config{Steps: telemetry.NewLogger(log, telemetry.LogJSON, nil, nil)})
	defer watched.Close()
	s := startService(t, t.TempDir(), sourceActions(), func(c *service.Config) { c.Node.Observer = watched })
	dev := s.key("acme", access.Developer)
	s.grant("acme", 1000)
	known := map[string]string{"sha256_abc...": s.call(dev, "POST", "/v1/files", "picture", "Content-Type", "application/octet-stream").want(201).text("hash")}
	// as writes a text of the source with what this server calls things.
	as := func(text string) string {
		for name, value := range known {
			text = strings.ReplaceAll(text, name, value)
		}
		for name, value := range leftOut {
			text = regexp.MustCompile(`"`+name+`": (\[\.\.\.\]|\{\.\.\.\})`).ReplaceAllLiteralString(text, `"`+name+`": `+value)
		}
		return text
	}
	ask := func(x exchange) answer {
		t.Helper()
		got := s.call(dev, x.method, as(x.path), []byte(as(x.body))).want(x.status)
		if ct := got.header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s %s: the type is %s", x.method, x.path, ct)
		}
		return got
	}
	created, executed, status := asked[0], asked[1], asked[2]

	got := ask(created)
	known["recipe_abc123"] = got.text("id")
	asSource(t, "created", got.value(), sourceJSON(t, created.answer), known)

	got = ask(executed)
	known["exec_xyz789"] = got.text("executionId")
	asSource(t, "executed", got.value(), sourceJSON(t, executed.answer), known)

	s.events(dev, known["exec_xyz789"], "", func(e event) bool { return e.name != "node.retried" })
	status.body = ""
	got = s.call(dev, status.method, as(status.path), nil).want(status.status)
	asSource(t, "status", got.value(), sourceJSON(t, status.answer), known)
	if results, _ := got.get("stepResults").(map[string]any); len(results) != 1 {
		t.Errorf("stepResults: %s", got.body)
	}

	want := sourceJSON(t, object(sourceText(t, "Logging", "Tracing"))).(map[string]any)
	line := sourceJSON(t, log.line(t, `"msg":"recipe step completed"`, `"stepId":"step_1"`)).(map[string]any)
	for name, value := range map[string]any{"executionId": known["exec_xyz789"], "recipeId": known["recipe_abc123"], "stepId": "step_1", "stepName": "inspect", "creditsUsed": 5.0, "outputBinding": "inspection"} {
		if _, there := want[name]; !there {
			t.Errorf("the line of the source has no %s", name)
		}
		want[name] = value
	}
	if d, err := time.ParseDuration(line["duration"].(string)); err != nil || d <= 0 {
		t.Errorf("the duration of the line is %v", line["duration"])
	}
	want["duration"] = line["duration"]
	asSource(t, "log", line, any(want), nil)

	s.call(dev, "POST", "/v1/recipe-executions/"+known["exec_xyz789"]+"/cancel", nil).want(200)
	log.line(t, `"msg":"recipe execution cancelled"`)
	rec := httptest.NewRecorder()
	watched.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	names := regexp.MustCompile(`(?m)• (recipe_\w+)`).FindAllStringSubmatch(sourceText(t, "Metrics", "Logging"), -1)
	if len(names) != 5 {
		t.Errorf("the source has the metrics %v", names)
	}
	for _, m := range names {
		if !regexp.MustCompile(`(?m)^` + m[1] + `(_bucket)?(\{.*\})? [0-9]`).MatchString(rec.Body.String()) {
			t.Errorf("there is no metric %s", m[1])
		}
	}
}

// X188 to X195: every path of the source is one of the interface.
func TestX188_ThePathsOfTheSource(t *testing.T) {
	list := requestLine.FindAllStringSubmatch(sourceText(t, "API Endpoints", "Request/Response Examples"), -1)
	if len(list) != 11 {
		t.Errorf("the source has %d paths", len(list))
	}
	for _, m := range list {
		path := strings.ReplaceAll(m[2], "{executionId}", "{id}")
		if !slices.ContainsFunc(document().operations, func(o *operation) bool { return o.method == m[1] && o.path == path }) {
			t.Errorf("there is no %s %s", m[1], path)
		}
	}
}

// The codes of the source are codes, and say the same about another try.
func TestTheCodesOfTheSource(t *testing.T) {
	// The table has lost its columns: a code, a sentence and a word follow one another.
	rows := regexp.MustCompile(`(?m)^[A-Z]+_.*(Yes|No|Configurable)$`).FindAllStringSubmatch(sourceText(t, "Error Types", "Step-Level Error Handling"), -1)
	if len(rows) != 9 {
		t.Errorf("the source has %d codes", len(rows))
	}
	for _, m := range rows {
		i := slices.IndexFunc(fault.All(), func(row fault.Info) bool { return strings.HasPrefix(m[0], string(row.Code)) })
		if i < 0 {
			t.Errorf("no code begins %q", m[0])
		} else if row := fault.All()[i]; m[1] != "Configurable" && row.Retryable != (m[1] == "Yes") {
			t.Errorf("%s: another try can succeed: %v, want %s", row.Code, row.Retryable, m[1])
		}
	}
}
