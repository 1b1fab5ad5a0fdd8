// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/provider/emulate"
	"github.com/roux-engine/roux/internal/sse"
)

// A recordedProvider is a service with models that remembers what it has answered: the answers to the
// question of each run, in their order.
type recordedProvider struct {
	emulated http.Handler
	mu       sync.Mutex
	answers  map[string][]*answered
}

// An answered is what was written to one request.
type answered struct {
	http.ResponseWriter
	mu      sync.Mutex
	written bytes.Buffer
}

func (a *answered) Write(p []byte) (int, error) {
	a.mu.Lock()
	a.written.Write(p)
	a.mu.Unlock()
	return a.ResponseWriter.Write(p)
}

func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (p *recordedProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, rest, _ := strings.Cut(string(body), "question-")
	name, _, _ := strings.Cut(rest, " ")
	a := &answered{ResponseWriter: w}
	p.mu.Lock()
	p.answers[name] = append(p.answers[name], a)
	p.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.emulated.ServeHTTP(a, r)
}

// texts returns the texts of the answers to a question. whole is that of the one that came to its
// end.
func (p *recordedProvider) texts(name string) (all []string, whole string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.answers[name] {
		a.mu.Lock()
		written := a.written.String()
		a.mu.Unlock()
		text := ""
		for line := range strings.Lines(written) {
			data, _ := strings.CutPrefix(line, "data: ")
			var piece struct {
				Choices []struct{ Delta struct{ Content string } }
				Delta   struct{ Text string }
			}
			if json.Unmarshal([]byte(data), &piece) == nil {
				if text += piece.Delta.Text; len(piece.Choices) > 0 {
					text += piece.Choices[0].Delta.Content
				}
			}
		}
		all = append(all, text)
		if strings.Contains(written, "[DONE]") || strings.Contains(written, "message_stop") {
			whole = text
		}
	}
	return all, whole
}

// A reader is what a client has of the text of a run.
type reader struct {
	run, name string
	news      chan<- struct{} // after each change
	mu        sync.Mutex
	text      string
	attempt   int
	err       error
}

func (r *reader) set(attempt int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempt, r.text = attempt, text
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// has reports whether it has a part of the text of an attempt.
func (r *reader) has(attempt int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempt == attempt && r.text != ""
}

// byClient follows the run with package client.
func (r *reader) byClient(ctx context.Context, c *client.Client) {
	var texts client.Texts
	for e, err := range c.Runs.Events(ctx, r.run, client.EventOptions{}) {
		if err == nil {
			var p client.TextPiece
			var ok bool
			if p, ok, err = texts.Add(&e); ok {
				r.set(p.Attempt, texts.Of("say"))
			}
		}
		if err != nil {
			r.err = err
			return
		}
	}
}

// byLastEventID follows the run as the page on events says, with what a browser sends: the header
// Last-Event-ID.
func (r *reader) byLastEventID(ctx context.Context, url, key string) {
	last, attempt, text := "", 0, ""
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/recipe-executions/"+r.run+"/events", nil)
		if err != nil {
			r.err = err
			return
		}
		req.Header.Set("Authorization", "Bearer "+key)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			select { // there is no server
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for in := sse.NewReader(res.Body, 0); ; {
			ev, err := in.Next()
			if err != nil {
				break
			}
			if ev.Own {
				last = ev.ID
			}
			var e struct {
				Payload struct {
					Attempt int
					Text    string
				}
			}
			if err := json.Unmarshal(ev.Data, &e); err != nil {
				r.err = err
			}
			switch p := e.Payload; ev.Name {
			case "node.started", "node.stream.delta":
				if p.Attempt != attempt {
					attempt, text = p.Attempt, ""
				}
				text += p.Text
				r.set(attempt, text)
			case "run.completed", "run.failed":
				_ = res.Body.Close()
				return
			}
		}
		_ = res.Body.Close()
	}
	r.err = errors.Join(r.err, ctx.Err())
}

// The server is killed while models stream, and another one takes its place, twice. What a client
// has at the end is what the provider has sent in the attempt that counts, and the result of the
// step: nothing of it is missing or there twice, and nothing of another attempt is left (F36, X181).
func TestF36_X181_KilledInMidStream(t *testing.T) {
	p := &recordedProvider{emulated: emulate.New(emulate.Config{Mode: emulate.Clock, Rate: 100}).Handler(), answers: map[string][]*answered{}}
	srv := httptest.NewServer(p)
	defer srv.Close()
	dir, address, key := shortDir(t), freeAddress(t), strings.Repeat("operator-", 5)
	env := []string{"ROUX_ADMIN_KEY=" + key, "ROUX_EGRESS_ALLOW=127.0.0.1/32", `ROUX_PROVIDERS={
		"openai": {"kind": "openai", "url": "` + srv.URL + `/v1", "model": "m", "prices": {"m": {"input": 0, "output": 0}}},
		"anthropic": {"kind": "anthropic", "url": "` + srv.URL + `", "model": "m", "prices": {"m": {"input": 0, "output": 0}}}}`}
	serve := func() *process { return start(t, env, "serve", "--data", dir, "--listen", address) }
	server, url := serve(), "http://"+address
	c, err := client.New(client.Config{URL: url, Key: key, Attempts: 300, Backoff: 20 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	var readers []*reader
	var reading sync.WaitGroup
	news := make(chan struct{}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, kind := range []string{"openai", "anthropic"} {
		recipe := `{"name": "` + kind + `", "version": "1.0.0", "steps": [{"id": "say", "action": {"name": "llm", "parameters": {"provider": "` + kind + `"}}, "inputBindings": {"prompt": "input.prompt"}}], "outputs": {"text": "steps.say.output.text"}}`
		if _, _, err := c.Recipes.Create(ctx, []byte(recipe)); err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			r := &reader{name: fmt.Sprint(kind, i), news: news}
			started, err := c.Recipes.Execute(ctx, kind, client.ExecuteRequest{Parameters: map[string]any{"prompt": "question-" + r.name + strings.Repeat(" word", 600)}})
			if err != nil {
				t.Fatal(err)
			}
			r.run, readers = started.ID, append(readers, r)
			if i%2 == 0 {
				reading.Go(func() { r.byClient(ctx, c) })
			} else {
				reading.Go(func() { r.byLastEventID(ctx, url, key) })
			}
		}
	}
	for attempt := 1; attempt <= 2; attempt++ {
		for slices.ContainsFunc(readers, func(r *reader) bool { return !r.has(attempt) }) {
			select {
			case <-news:
			case <-ctx.Done():
				t.Fatalf("attempt %d is not seen\n%s", attempt, server.said())
			}
		}
		server.signal(os.Kill)
		server.wait()
		server = serve()
	}
	reading.Wait()
	for _, r := range readers {
		all, whole := p.texts(r.name)
		run, err := c.Runs.Get(t.Context(), r.run, true)
		if err = errors.Join(err, r.err); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		var out struct{ Text string }
		if err := json.Unmarshal(run.Outputs, &out); err != nil {
			t.Fatal(err)
		}
		if len(all) != 3 || whole == "" || whole != all[2] || slices.Contains(all[:2], whole) {
			t.Errorf("%s: the provider was asked %d times", r.name, len(all))
		}
		if r.text != whole || r.attempt != 3 || out.Text != whole {
			t.Errorf("%s: attempt %d, the client has\n%s\nthe step\n%s\nthe provider has sent\n%s", r.name, r.attempt, r.text, out.Text, strings.Join(all, "\nand "))
		}
	}
}
