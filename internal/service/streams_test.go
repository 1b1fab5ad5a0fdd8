// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/provider/emulate"
	"github.com/roux-engine/roux/internal/service"
)

const spoken = "one two three four five six seven eight"

// speak starts a run with a response in the background, with what the emulator is to do.
func (f *farm) speak(settings string) string {
	f.t.Helper()
	settings = `{"result": "` + spoken + `", ` + settings + `}`
	return f.start("job-openai", fmt.Sprintf(`{"model": "small", "input": {"input": "a cat", "metadata": {"emulate": %q}}}`, settings))
}

// A heard is what a watcher of a run gets.
type heard struct {
	text string // of the step
	ends int    // node.completed
	last string
}

// hear watches a run from its beginning until an event of a type has come, and the step has a text.
func (f *farm) hear(run, until, text string) (h heard) {
	f.t.Helper()
	c, err := client.New(client.Config{URL: f.url, Attempts: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	var texts client.Texts
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	for ev, err := range c.Runs.Events(ctx, run, client.EventOptions{}) {
		if err != nil {
			f.t.Fatal(err)
		}
		if _, _, err := texts.Add(&ev); err != nil {
			f.t.Fatal(err)
		}
		if h.last = ev.Type; h.last == "node.completed" {
			h.ends++
		}
		if h.text = texts.Of("draw"); (ev.Type == until || h.last == "run.completed") && len(h.text) >= len(text) {
			break
		}
	}
	return h
}

// F13: over real sockets, the stream of a response, its webhook and polls race with each other, and each
// of them goes wrong: one result, one job, and a text that has nothing twice.
func TestF13_StreamsOfServices(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{Late: time.Minute}, nil)
	for what, test := range map[string]struct {
		settings string
		whole    bool // the text that is shown is the whole answer
		some     bool // some of it is shown, whatever ends the job
	}{
		"all of them":            {`"after": "300ms"`, false, false},
		"the webhook is lost":    {`"mode": "lost", "after": "300ms"`, true, true},
		"the webhook is late":    {`"mode": "late", "after": "300ms"`, true, true},
		"polls are refused":      {`"mode": "deaf", "after": "300ms"`, false, false},
		"the stream breaks":      {`"mode": "cut", "after": "4s"`, false, true},
		"the stream begins anew": {`"mode": "doubled", "after": "300ms"`, false, true},
		"the stream stalls":      {`"mode": "stalled", "after": "400ms"`, false, true},
		"the stream is late":     {`"mode": "lagging", "after": "400ms"`, true, true},
		"it is over at once":     {`"after": "0s"`, false, false},
	} {
		t.Run(what, func(t *testing.T) {
			begun := time.Now()
			run := f.speak(test.settings)
			h := f.hear(run, "run.completed", "")
			if h.last != "run.completed" || h.ends != 1 || !strings.HasPrefix(spoken, h.text) || test.whole && h.text != spoken || test.some && h.text == "" {
				t.Errorf("%+v", h)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %s: only a poll ended it", took)
			}
		})
	}
	for _, j := range f.emu.Books().Jobs {
		if j.Submitted != 1 || j.Cancels != 0 {
			t.Errorf("%+v", j)
		}
	}
}

// F01: a server that is started again follows its responses, and what was shown is not shown twice; a run
// that is cancelled ends the stream.
func TestF01_StreamsOfServices(t *testing.T) {
	f := newFarm(t, emulate.JobsConfig{}, func(all map[string]provider.Config) {
		one := all["openai"]
		one.Slots = 2
		all["openai"] = one
	})
	run := f.speak(`"mode": "lost", "after": "4s"`)
	silent := f.speak(`"mode": "silent", "after": "4s"`)
	f.hear(run, "node.stream.delta", "one ")
	f.hear(silent, "node.stream.delta", "one ")
	f.close(f.s)
	f.s, f.url = f.must(func(cfg *service.Config) { cfg.Open = true })
	if h := f.hear(run, "run.completed", ""); h.text != spoken || h.ends != 1 {
		t.Errorf("%+v", h)
	}
	f.hear(silent, "node.stream.delta", spoken)
	if status, out := ask(t, "POST", f.url+"/v1/recipe-executions/"+silent+"/cancel", "", `{}`); status > 202 {
		t.Fatal(status, out)
	}
	if h := f.hear(silent, "run.cancelled", spoken); h.text != spoken || h.ends != 0 {
		t.Errorf("%+v", h)
	}
	f.until("cancelled", func(all []emulate.JobEntry) bool { return all[1].Cancels == 1 && all[1].State == emulate.JobCancelled })
	for _, j := range f.emu.Books().Jobs {
		if j.Submitted != 1 || j.Streams < 2 {
			t.Errorf("%+v", j)
		}
	}
}
