// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/store"
)

// A hostile worker has a valid key of acme and a task of it. It also knows a lease and a file of rival,
// and a lease of its own that has ended.
type hostile struct {
	s                   *service.Service
	url                 string
	owner, key          string // of acme
	rival               string // a worker's key
	rivalRun            string
	theirs, old, stolen string // the lease of rival, the one that has ended, and the file of rival
	last                uint64 // event of the run of rival
}

// bodies are what workers send, with names for the leases and the file.
var bodies = []string{
	`{"queue":"default"}`,
	`{"queue":"default","actions":["double","double@1.0.0","../x"],"labels":{"gpu":"no"},"max":256,"waitMs":1}`,
	`{"queue":"default","account":"rival","max":1}`,
	`{"queue":"default","max":-1,"waitMs":9223372036854775808}`,
	`{"leases":["$MINE","$THEIRS","$OLD","","a.b.c"]}`,
	`{"reports":[{"lease":"$MINE","seq":3,"fraction":0.5,"text":"half"},{"lease":"$MINE","seq":1,"log":"late"},{"lease":"$MINE","seq":9223372036854775807,"delta":"x"}]}`,
	`{"leases":["$THEIRS"],"reports":[{"lease":"$THEIRS","log":"forged","level":"error"},{"lease":"$THEIRS","preview":{"n":1}}]}`,
	`{"reports":[{"lease":"$MINE","preview":{"$roux":"ref","bytes":22,"hash":"$FILE","size":22,"type":"string"}},{"lease":"$MINE","fraction":1e308},{"lease":"$MINE","preview":[[[[[[[[]]]]]]]]}]}`,
	`{"results":[{"lease":"$MINE","output":{"n":1}}]}`,
	`{"results":[{"lease":"$MINE","output":{"n":1},"price":"999999999.999999"}]}`,
	`{"results":[{"lease":"$MINE","output":{"n":1},"price":"0.000001"},{"lease":"$MINE","output":{"n":2}},{"lease":"$MINE","error":{"message":"no"}}]}`,
	`{"results":[{"lease":"$THEIRS","output":{"n":66}},{"lease":"$OLD","output":{"n":66}}]}`,
	`{"results":[{"lease":"$MINE","output":{"n":"1"}}]}`,
	`{"results":[{"lease":"$MINE","output":{"n":1,"file":"$FILE","x":{"$roux":"ref","bytes":22,"hash":"$FILE","size":22,"type":"string"}}}]}`,
	`{"results":[{"lease":"$MINE","output":{"n":1e400}}]}`,
	`{"results":[{"lease":"$MINE","output":{"n":1,"n":2}}]}`,
	`{"results":[{"lease":"$MINE","error":{"code":"NO_SUCH_CODE","message":"","retryAfterMs":3600000,"outcomeUnknown":true}}]}`,
	`{"results":[{"lease":"$MINE","submitted":{"provider":"@workers","jobId":"$THEIRS","handle":{"a":[[1]]},"ttlMs":1000}}]}`,
	`{"results":[{"lease":"$THEIRS","submitted":{"provider":"farm","jobId":"../x"}},{"lease":"$OLD","submitted":{"provider":"farm","jobId":"1"}}]}`,
	`{"results":[{"lease":"$MINE","error":{"code":"INTERNAL_ERROR","message":"{{ secrets.key }}"},"account":"rival","run":"x"}]}`,
}

// paths are those of the operations of workers.
var paths = []string{"/v1/workers/lease", "/v1/workers/heartbeat", "/v1/workers/results"}

// FuzzHostileWorker sends what a worker with a valid key can send: nothing fails inside, every answer is
// what the document says, nothing of another account changes or is shown, and a run whose task the worker
// has ends all the same.
func FuzzHostileWorker(f *testing.F) {
	h := newHostile(f)
	for i, body := range bodies {
		f.Add(uint64(i), []byte(body))
	}
	for seed := range uint64(40) {
		f.Add(100+seed, []byte(bodies[int(seed)%len(bodies)]))
	}
	f.Fuzz(func(t *testing.T, seed uint64, body []byte) {
		r := rand.New(rand.NewPCG(seed, 2))
		run := h.execute(t, h.owner)
		tokens := h.lease(t)
		list := [][]byte{body}
		for range r.IntN(4) {
			list = append(list, spoiled(r, bodies[r.IntN(len(bodies))]))
		}
		for _, b := range list {
			at := paths[r.IntN(len(paths))]
			for i, name := range []string{`"queue"`, `"leases"`, `"results"`} { // mostly to where it belongs
				if r.IntN(8) > 0 && bytes.Contains(b, []byte(name)) {
					at = paths[i]
				}
			}
			text := strings.NewReplacer("$MINE", tokens[0], "$THEIRS", h.theirs, "$OLD", h.old, "$FILE", h.stolen).Replace(string(b))
			tokens = append(tokens, h.send(t, at, text)...)
		}
		if r.IntN(4) == 0 {
			h.steal(t)
		}
		h.finish(t, run, tokens)
		h.untouched(t)
	})
}

func newHostile(f *testing.F) *hostile {
	p := newPlace(f)
	spec := doubles
	spec.Accounts, spec.Lease, spec.Price = []string{"acme", "rival"}, "1h", "0.5"
	if err := p.actions.AddWorkers(map[string]lease.Spec{"double": spec}); err != nil {
		f.Fatal(err)
	}
	s, url := p.must(func(cfg *service.Config) {
		cfg.Rate = -1
		cfg.Node.Accounts = map[string]engine.AccountRules{"acme": {Unmetered: true}, "rival": {Unmetered: true}}
	})
	f.Cleanup(func() { _ = s.Close(context.WithoutCancel(f.Context())) })
	key := func(account string, role access.Role) string {
		return h201(f, url+"/v1/keys", s.FirstKey, `{"account": "`+account+`", "name": "a key", "role": "`+string(role)+`"}`)["token"].(string)
	}
	h := &hostile{s: s, url: url, owner: key("acme", access.Owner), key: key("acme", access.Worker), rival: key("rival", access.Worker)}
	rival := key("rival", access.Owner)
	for _, owner := range []string{h.owner, rival} {
		h201(f, url+"/v1/recipes", owner, `{"name": "r", "version": "1.0.0", "steps": [{"id": "d", "action": {"name": "double", "parameters": {"n": 1}}}]}`)
	}
	h.rivalRun = h.execute(f, rival)
	h.theirs = h.leaseAs(f, h.rival)[0]
	h.stolen = h.upload(f, h.rival)
	h.last = h.saved(f, "rival", h.rivalRun).Last
	ended := h.execute(f, h.owner)
	h.old = h.lease(f)[0]
	h.finish(f, ended, []string{h.old})
	return h
}

func h201(t testing.TB, url, key, body string) map[string]any {
	t.Helper()
	status, out := ask(t, "POST", url, key, body)
	if status != http.StatusCreated {
		t.Fatal(status, out)
	}
	return out
}

func (h *hostile) saved(t testing.TB, account, run string) *store.Saved {
	t.Helper()
	saved, err := h.s.Node.Store.Load(t.Context(), store.Key{Account: account, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// execute starts a run.
func (h *hostile) execute(t testing.TB, owner string) string {
	t.Helper()
	status, run := ask(t, "POST", h.url+"/v1/recipes/r/execute", owner, `{}`)
	if status != http.StatusAccepted {
		t.Fatal(status, run)
	}
	return run["executionId"].(string)
}

func (h *hostile) lease(t testing.TB) []string { return h.leaseAs(t, h.key) }

// leaseAs asks for tasks until there are some, and returns their leases.
func (h *hostile) leaseAs(t testing.TB, key string) []string {
	t.Helper()
	for {
		status, out := ask(t, "POST", h.url+paths[0], key, `{"queue": "default", "max": 9, "waitMs": 20000}`)
		if status != http.StatusOK {
			t.Fatal(status, out)
		}
		if list := leasesOf(out); len(list) > 0 {
			return list
		}
	}
}

func leasesOf(out map[string]any) (list []string) {
	tasks, _ := out["tasks"].([]any)
	for _, task := range tasks {
		list = append(list, task.(map[string]any)["lease"].(string))
	}
	return list
}

// send sends a body, judges the answer, and returns the leases in it.
func (h *hostile) send(t *testing.T, path, body string) []string {
	t.Helper()
	limit := 20 * time.Second
	if path == paths[0] { // it may wait for tasks
		limit = 200 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	status, header, data, err := h.request(ctx, "POST", path, h.key, "", body)
	if path == paths[0] && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatalf("%s %.300q: %v", path, body, err) // a panic ends the connection
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%s %.300q answers %d %.300q", path, body, status, data)
	}
	if status != http.StatusOK {
		code, _ := out["code"].(string)
		row, known := fault.Lookup(fault.Code(code))
		if status >= 500 || !known || row.HTTP != status || header.Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%s %.300q answers %d %s %.300q", path, body, status, header.Get("Content-Type"), data)
		}
		return nil
	}
	switch path {
	case paths[0]:
		for _, task := range out["tasks"].([]any) {
			if account := task.(map[string]any)["account"]; account != "acme" {
				t.Fatalf("%.300q gets a task of %v", body, account)
			}
		}
	case paths[1]:
		var asked struct {
			Leases  []string
			Reports []struct{ Lease string }
		}
		_ = json.Unmarshal([]byte(body), &asked) // the server has read it
		for _, r := range asked.Reports {
			asked.Leases = append(asked.Leases, r.Lease)
		}
		for _, token := range asked.Leases {
			if (token == h.theirs || token == h.old) && !slices.Contains(out["ended"].([]any), any(token)) {
				t.Fatalf("%.300q extends a lease that is not its own: %.300q", body, data)
			}
		}
	case paths[2]:
		for _, one := range out["results"].([]any) {
			one := one.(map[string]any)
			known := one["status"] == "recorded" || one["status"] == "ended" || one["status"] == "failed" && strings.Contains(body, "submitted")
			if !known || one["status"] == "recorded" && one["lease"] == h.theirs {
				t.Fatalf("%.300q becomes %v", body, one)
			}
		}
	}
	return leasesOf(out)
}

func (h *hostile) request(ctx context.Context, method, path, key, token, body string) (status int, header http.Header, data []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Roux-Lease", token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	data, err = io.ReadAll(res.Body)
	return res.StatusCode, res.Header, data, err
}

// upload stores a file, and returns its hash.
func (h *hostile) upload(t testing.TB, key string) string {
	t.Helper()
	_, _, data, err := h.request(t.Context(), "POST", "/v1/files?name=a.json", key, "", `{"secret": "of rival"}`)
	var file struct{ Hash string }
	if err := errors.Join(err, json.Unmarshal(data, &file)); err != nil || file.Hash == "" {
		t.Fatalf("%v %s", err, data)
	}
	return file.Hash
}

// steal asks for the file of rival, with the lease of rival.
func (h *hostile) steal(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/v1/files/" + h.stolen, "/v1/files/" + h.stolen + "/content"} {
		if status, _, data, err := h.request(t.Context(), "GET", path, h.key, h.theirs, ""); status != http.StatusNotFound || err != nil {
			t.Fatalf("%s: %d %s %v", path, status, data, err)
		}
	}
}

// finish lets an honest worker end what has not ended, and asserts that the run ends, at no higher price
// than that of its action.
func (h *hostile) finish(t testing.TB, run string, tokens []string) {
	t.Helper()
	for _, token := range tokens {
		status, out := ask(t, "POST", h.url+paths[2], h.key, `{"results": [{"lease": "`+token+`", "output": {"n": 2}}]}`)
		if status != http.StatusOK {
			t.Fatal(status, out)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	head, err := h.s.Node.Engine.Wait(ctx, "acme", run)
	if err != nil || head.Status != "completed" && head.Status != "failed" || head.Used > 1 {
		t.Fatalf("the run is %s, for %d credits: %v", head.Status, head.Used, err)
	}
}

// untouched asserts that nothing has happened to what belongs to rival, whose worker has its task.
func (h *hostile) untouched(t *testing.T) {
	t.Helper()
	if saved := h.saved(t, "rival", h.rivalRun); saved.Last != h.last || saved.Head.Quarantine != "" {
		t.Fatalf("the run of rival has %d events instead of %d, %s", saved.Last, h.last, saved.Head.Quarantine)
	}
	status, out := ask(t, "POST", h.url+paths[1], h.rival, `{"leases": ["`+h.theirs+`"]}`)
	if status != http.StatusOK || fmt.Sprint(out["ended"]) != "[]" {
		t.Fatalf("rival's worker has lost its task: %d %v", status, out)
	}
}

// spoiled changes a body: one value of it, its text, or both.
func spoiled(r *rand.Rand, body string) []byte {
	var v any
	if json.Unmarshal([]byte(body), &v) == nil && r.IntN(8) > 0 {
		for range r.IntN(3) {
			v = changed(r, v, 6)
		}
		if data, err := json.Marshal(v); err == nil {
			body = string(data)
		}
	}
	at := r.IntN(len(body) + 1)
	switch r.IntN(16) {
	case 0:
		body = body[:at]
	case 1:
		body = body[:at] + string(rune(r.IntN(0x500))) + body[at:]
	case 2:
		body = strings.Replace(body, `{"`, `{"results":[],"lease":"$THEIRS","`, 1)
	case 3:
		body = strings.Replace(body, `[`, strings.Repeat("[", 20_000), 1)
	case 4:
		body = strings.Replace(body, `1`, "1"+strings.Repeat("0", 400), 1)
	}
	return []byte(body)
}

// changed returns a value with another one in a place of it.
func changed(r *rand.Rand, v any, depth int) any {
	if depth == 0 || r.IntN(4) == 0 {
		return []any{
			nil, true, -1, 0.5, json.Number("1e400"), json.Number("9223372036854775808"), "", "$THEIRS", "$OLD", "$FILE", "\x00", strings.Repeat("x", 70_000),
			[]any{}, []any{v, v}, map[string]any{}, map[string]any{"lease": "$THEIRS", "output": v}, map[string]any{"$roux": "ref", "bytes": 22, "hash": "$FILE", "size": 22, "type": "string"},
		}[r.IntN(17)]
	}
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return []any{nil}
		}
		v = slices.Clone(v)
		i := r.IntN(len(v))
		v[i] = changed(r, v[i], depth-1)
		return v
	case map[string]any:
		out, i, at := map[string]any{}, 0, r.IntN(len(v)+1)
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			out[name] = v[name]
			if i == at {
				out[name] = changed(r, v[name], depth-1)
			}
			i++
		}
		if at == len(v) {
			out["unknown"] = "$THEIRS"
		}
		return out
	}
	return changed(r, v, 0)
}
