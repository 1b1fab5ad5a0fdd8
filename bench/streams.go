// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	web "github.com/roux-engine/roux/client"
)

// The streams of models that are measured at once, and how fast each is.
const (
	modelStreams = 200
	tokenRate    = 50 // tokens a second
	// startTime is within what it takes to start them all.
	startTime = 2 * time.Second
)

// asksModel is a recipe whose run is one call of a model, with a prompt of as many words as the
// answer shall have.
const asksModel = `{"name": "ask", "version": "1.0.0",
"inputSchema": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
"steps": [{"id": "say", "action": {"name": "llm"}, "inputBindings": {"prompt": "input.prompt"}}],
"outputs": {"text": "steps.say.output.text"}}`

// A chorus is a server whose runs stream answers of `roux emulate llm`, each followed by a client.
type chorus struct {
	b        *bench
	config   string
	dir      string
	emulator *server
	server   *server
	voices   []*voice
	silent   sync.WaitGroup // voices that have no token yet
	open     atomic.Int64   // voices that have not ended
	errs     chan error
}

// A voice is one run, as its client sees it.
type voice struct {
	client *web.Client
	run    string
	texts  web.Texts
	pieces []arrival // of the text as it is now
	frames []frame
	again  int // how often the text has begun again
	err    error
}

// An arrival is when a token has come, and how long after it was sent, in µs.
type arrival struct{ at, took int64 }

// A frame is when an event came that has a number, in µs.
type frame struct {
	at int64
	id uint64
}

// chorus starts an emulator and a server that uses it as a service of a kind.
func (b *bench) chorus(ctx context.Context, shape, kind string) (c *chorus, err error) {
	c = &chorus{b: b, dir: filepath.Join(b.fresh(), "data"), errs: make(chan error, modelStreams)}
	if c.emulator, err = command(ctx, "", nil, "emulate", "llm", "--listen", anyPort, "--mode", "clock", "--rate", strconv.Itoa(tokenRate), "--output", "json"); err != nil {
		return nil, err
	}
	c.config = fmt.Sprintf(`{"providers": {"main": {"kind": %q, "url": "http://%s/v1", "model": "small", "slots": %d, "prices": {"small": {"input": 0.5, "output": 2}}}}}`,
		kind, c.emulator.address, modelStreams)
	if c.server, err = c.serve(ctx, anyPort, shape); err != nil {
		return nil, errors.Join(err, c.emulator.stop())
	}
	return c, nil
}

// serve starts the server at an address.
func (c *chorus) serve(ctx context.Context, listen, shape string) (*server, error) {
	return c.b.serveAt(ctx, listen, c.dir, shape, c.config, "ROUX_EGRESS_ALLOW=127.0.0.1/32")
}

func (c *chorus) stop() error { return errors.Join(c.server.stop(), c.emulator.stop()) }

// sing starts n runs, of as many accounts as there are connections in other shapes, whose answers
// have as many tokens as come in a time, and follows them. It returns once each has a token.
func (c *chorus) sing(ctx context.Context, n int, long time.Duration) error {
	tenants, err := c.server.tenants(ctx, min(n, connections), asksModel)
	if err != nil {
		return err
	}
	clients := make([]*web.Client, len(tenants))
	for i, t := range tenants {
		if clients[i], err = web.New(web.Config{URL: "http://" + c.server.address, Key: t.key}); err != nil {
			return err
		}
	}
	prompt := strings.Repeat(" word", int(long.Seconds()*tokenRate))
	c.voices = make([]*voice, n)
	c.silent.Add(n)
	c.open.Add(int64(n))
	err = together(min(n, 8), func(i int) error {
		for ; i < n; i += 8 {
			v := &voice{client: clients[i%len(clients)]}
			started, err := v.client.Recipes.Execute(ctx, "ask", web.ExecuteRequest{Parameters: map[string]any{"prompt": prompt}})
			if err != nil {
				return err
			}
			v.run, c.voices[i] = started.ID, v
			go v.follow(ctx, c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	sung := make(chan struct{})
	go func() { c.silent.Wait(); close(sung) }()
	select {
	case <-sung:
		return nil
	case err := <-c.errs:
		return err
	case <-time.After(requestTime):
		return errors.New("some streams have not begun")
	}
}

// follow reads the events of the run to its end.
func (v *voice) follow(ctx context.Context, c *chorus) {
	heard := false
	defer func() {
		c.errs <- v.err
		if c.open.Add(-1); !heard {
			c.silent.Done()
		}
	}()
	size := 0 // of the text
	for e, err := range v.client.Runs.Events(ctx, v.run, web.EventOptions{}) {
		if err != nil {
			v.err = err
			return
		}
		p, changed, err := v.texts.Add(&e)
		now := time.Now().UnixMicro()
		v.frames = append(v.frames, frame{now, e.ID})
		switch {
		case err != nil:
			v.err = err
			return
		case !changed:
			if e.Type == "run.failed" || e.Type == "run.cancelled" {
				v.err = fmt.Errorf("%s: %s", e.Type, e.Payload)
			}
			continue
		case p.Again:
			size, v.pieces, v.again = 0, v.pieces[:0], v.again+1
		}
		if !heard {
			heard = true
			c.silent.Done()
		}
		size += len(p.Text)
		// A text of the emulator's clock has tokens of one size. One may come in two pieces.
		for len(v.pieces) < size/tokenBytes {
			at := len(v.pieces) * tokenBytes
			sent, err := strconv.ParseInt(v.texts.Of(p.Node)[at+1:at+tokenBytes], 10, 64)
			if err != nil {
				v.err = fmt.Errorf("a token is no time: %w", err)
				return
			}
			v.pieces = append(v.pieces, arrival{now, now - sent})
		}
	}
}

// tokenBytes is the size of a token of the emulator's clock.
const tokenBytes = 17

// ended waits until all runs have ended, and counts those whose client has another text than the
// output of the run.
func (c *chorus) ended(ctx context.Context) (wrong int, err error) {
	limit := time.After(2 * requestTime)
	for range c.voices {
		select {
		case e := <-c.errs:
			err = errors.Join(err, e)
		case <-limit:
			return 0, errors.New("some streams do not end")
		}
	}
	if err != nil {
		return 0, err
	}
	for _, v := range c.voices {
		run, err := v.client.Runs.Get(ctx, v.run, true)
		if err != nil {
			return 0, err
		}
		if text := v.texts.Of("say"); text == "" || !strings.Contains(string(run.Outputs), strconv.Quote(text)) {
			wrong++
		}
	}
	return wrong, nil
}

// streams measures answers of models that many clients follow: how late a token is that a service
// has sent, and what that costs the server.
func streams(ctx context.Context, b *bench) (lines []Line, err error) {
	for _, of := range []struct{ shape, kind string }{{"streams", "openai"}, {"streams-anthropic", "anthropic"}} {
		l, err := b.streamsOf(ctx, of.shape, of.kind)
		if err != nil {
			return lines, fmt.Errorf("%s: %w", of.kind, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

func (b *bench) streamsOf(ctx context.Context, shape, kind string) (l Line, err error) {
	n := b.few(modelStreams, 6)
	c, err := b.chorus(ctx, shape, kind)
	if err != nil {
		return l, err
	}
	defer func() { err = closing(c.stop, err) }()
	if err := c.sing(ctx, n, b.pressTime()+b.rest()+startTime); err != nil {
		return l, err
	}
	time.Sleep(b.rest() / 5) // the starts are over, too
	began, used, others, mine := time.Now(), c.server.used(), c.emulator.used(), cpu()
	time.Sleep(b.pressTime())
	to := time.Now()
	spent := to.Sub(began)
	used, others, mine = c.server.used()-used, c.emulator.used()-others, cpu()-mine
	if left := c.open.Load(); left != int64(n) {
		return l, fmt.Errorf("%d of %d streams ended while they were measured", int64(n)-left, n)
	}
	rss := c.server.rss()
	wrong, err := c.ended(ctx)
	if err != nil {
		return l, err
	}
	var took []time.Duration
	var most, all float64
	for _, v := range c.voices {
		took = append(took, v.took(began, to)...)
		events := float64(v.last(to)-v.last(began)) / spent.Seconds()
		most, all = max(most, events), all+events
	}
	l = b.line(shape, n)
	l.Seconds, l.RSSMB = spent.Seconds(), rss
	l.StepsPerS, l.CPUPerStepUS = float64(len(took))/spent.Seconds(), us(used)/float64(len(took))
	l.spread(took)
	l.put("cpu_share", used.Seconds()/spent.Seconds())
	l.put("emulator_cpu_share", others.Seconds()/spent.Seconds())
	l.put("client_cpu_share", mine.Seconds()/spent.Seconds())
	l.put("events_per_s", all/float64(n))
	l.put("most_events_per_s", most)
	l.put("wrong", float64(wrong))
	return l, nil
}

// took returns how long each token has taken that came in a time.
func (v *voice) took(from, to time.Time) (list []time.Duration) {
	for _, a := range v.pieces {
		if a.at >= from.UnixMicro() && a.at < to.UnixMicro() {
			list = append(list, time.Duration(a.took)*time.Microsecond)
		}
	}
	return list
}

// last returns the number of the last event that had come at a time.
func (v *voice) last(at time.Time) uint64 {
	i, _ := slices.BinarySearchFunc(v.frames, at.UnixMicro(), func(f frame, at int64) int { return int(f.at - at) })
	if i == 0 {
		return 0
	}
	return v.frames[i-1].id
}

// streamsKilled kills a server in the middle of such streams. Another one takes its place, and the
// clients read on with their cursors.
func streamsKilled(ctx context.Context, b *bench) (lines []Line, err error) {
	n := b.few(modelStreams, 6)
	c, err := b.chorus(ctx, "", "openai")
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(c.stop, err) }()
	long := b.rest() + startTime
	if err := c.sing(ctx, n, long); err != nil {
		return nil, err
	}
	time.Sleep(long / 4)
	if err := c.server.kill(); err != nil {
		return nil, err
	}
	began := time.Now()
	next, err := c.serve(ctx, c.server.address, "")
	if err != nil {
		return nil, err
	}
	c.server = next
	l := b.line("streams-killed", n)
	l.put("ready_s", time.Since(began).Seconds())
	if left := c.open.Load(); left != int64(n) {
		return nil, fmt.Errorf("%d of %d streams had ended when the server was killed", int64(n)-left, n)
	}
	wrong, err := c.ended(ctx)
	if err != nil {
		return nil, err
	}
	l.Seconds, l.RSSMB = time.Since(began).Seconds(), c.server.rss()
	l.put("wrong", float64(wrong))
	var took []time.Duration
	again := 0
	for _, v := range c.voices {
		again += v.again
		took = append(took, time.UnixMicro(v.pieces[0].at).Sub(began))
	}
	l.spread(took)
	l.put("again", float64(again))
	return []Line{l}, nil
}
