// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// What happens to a step that waits for an external job, in every order.
const (
	aWebhook   = 'w' // success
	aPoll      = 'p' // failure
	aSubmit    = 's' // the submission is reported
	aCancel    = 'c'
	aRetry     = 'r'
	aCrash     = 'x' // attempts of workers are lost; jobs are not
	anExpiry   = 't' // 24 h pass
	aPause     = 'q'
	anUnpause  = 'u'
	aTask      = 'y' // the attempt becomes the task of a remote worker, whose job aSubmit is
	aRedeliver = 'z' // the submission is reported once more, by a worker that was presumed dead
)

// everyOrder calls fn with every order of the letters, each once. Equal letters are not told
// apart.
func everyOrder(letters []byte, fn func([]byte)) {
	slices.Sort(letters)
	for {
		fn(letters)
		i := len(letters) - 2
		for i >= 0 && letters[i] >= letters[i+1] {
			i--
		}
		if i < 0 {
			return
		}
		k := len(letters) - 1
		for letters[k] <= letters[i] {
			k--
		}
		letters[i], letters[k] = letters[k], letters[i]
		slices.Reverse(letters[i+1:])
	}
}

// TestF13_EveryInterleaving plays every order in which two webhooks, two polls, the submission
// and its repetition, a cancel, a retry, a crash and the end of the job's time may come. In each,
// an attempt takes one result, the store keeps the jobs that steps wait for, a job that nobody
// waits for is cancelled, and the run ends when its time has come (F13, X131, X134, X137).
func TestF13_EveryInterleaving(t *testing.T) {
	letters := "wwppscrxt"
	if os.Getenv("ROUX_LONG") != "" {
		letters += "z"
	}
	playEveryOrder(t, letters)
}

// TestF13_EveryInterleavingOfAPausedRun does so with one webhook, while the run is paused
// and goes on: a result that comes meanwhile counts, and what follows from it waits.
func TestF13_EveryInterleavingOfAPausedRun(t *testing.T) {
	letters := "wscrxtqu"
	if os.Getenv("ROUX_LONG") != "" {
		letters += "p"
	}
	playEveryOrder(t, letters)
}

// TestF13_EveryInterleavingOfARemoteWorker does so with an attempt that is the task of a remote worker
// first: what a worker submits takes the place of its task, and nothing is between the two.
func TestF13_EveryInterleavingOfARemoteWorker(t *testing.T) {
	letters := "wpyscrxt"
	if os.Getenv("ROUX_LONG") != "" {
		letters += "s"
	}
	playEveryOrder(t, letters)
}

func playEveryOrder(t *testing.T, letters string) {
	t.Helper()
	p := compilePlan(t, "name: x\nttl: 100h\nsteps:\n  - {id: a, action: {name: work}, timeout: 23h, retryPolicy: {maxAttempts: 2, initialDelay: 1s}}\n  - {id: b, action: {name: work}, onError: {strategy: skip}}\n")
	prog := Prepare(p)
	n, ends := 0, map[journal.RunStatus]int{}
	everyOrder([]byte(letters), func(order []byte) {
		n++
		w := newInterleaving(t, prog, n%500 == 0)
		for _, what := range order {
			w.play(what, string(order))
		}
		w.finish(string(order))
		if got, want := w.firstEnded(), expectedEnd(order); got != want {
			t.Fatalf("in the order %s the first attempt ends with %s, want %s", order, got.Name(), want.Name())
		}
		ends[w.run.Status()]++
	})
	t.Logf("%d orders, which end %v", n, ends)
	for _, status := range []journal.RunStatus{journal.RunCompleted, journal.RunCancelled} {
		if ends[status] == 0 {
			t.Errorf("no order ends %s", status)
		}
	}
}

// expectedEnd is what ends the first attempt: the first of these that applies.
func expectedEnd(order []byte) journal.EventKind {
	task, waits := false, false
	for _, what := range order {
		switch {
		case what == aTask:
			task = true
		case what == aSubmit, what == aRedeliver:
			waits = task || !slices.Contains(order, aTask)
		case what == aWebhook && waits:
			return journal.EvNodeCompleted
		case what == aPoll && waits, what == anExpiry:
			return journal.EvNodeRetried
		case what == aCancel:
			return journal.EvNodeCancelled
		case what == aCrash && !waits && !task:
			return journal.EvNodeLost
		}
	}
	return 0 // something does: the expiry at the latest
}

// firstEnded is the kind of the event that has ended the first attempt of a.
func (w *interleaving) firstEnded() (kind journal.EventKind) {
	a := journal.Ref{Step: stepNamed(w.prog.plan, "a")}
	gen := uint32(1)
	if err := journal.EachEvent(w.led.frames, func(ev *journal.Event) error {
		if ev.Kind == journal.EvRunRetried {
			gen++
		}
		if gen != 1 || ev.Ref() != a || ev.Attempt != 1 || kind != 0 {
			return nil
		}
		switch ev.Kind {
		case journal.EvNodeCompleted, journal.EvNodeRetried, journal.EvNodeCancelled, journal.EvNodeLost, journal.EvNodeFailed:
			kind = ev.Kind
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return kind
}

// An interleaving is a run of two steps, the first of which may become a job.
type interleaving struct {
	t     *testing.T
	prog  *Program
	run   *Run
	led   *runChecker
	now   int64
	turn  Turn
	whole bool // check every replay, too
	task  bool // the attempt has become the task of a remote worker
	first journal.Fence
	todo  []Command
}

func newInterleaving(t *testing.T, prog *Program, whole bool) *interleaving {
	w := &interleaving{t: t, prog: prog, run: NewRun(prog), now: t0, whole: whole}
	w.led = newLedger(w.run)
	w.feed(&Input{Kind: InStart, Start: &journal.Start{Run: "run_1", Account: "a", Recipe: "x", Seed: 1, Pins: pinsOf(prog.plan), PlanHash: "h"}}, "start")
	w.first = journal.Fence{Gen: 1, Attempt: 1}
	return w
}

// feed gives an input to the run, and grants whatever it asks for.
func (w *interleaving) feed(in *Input, order string) {
	queue := []*Input{in}
	for len(queue) > 0 {
		in, queue = queue[0], queue[1:]
		in.At = w.now
		w.run.Decide(in, &w.turn)
		if err := w.check(); err != nil {
			w.t.Fatalf("in the order %s: %v", order, err)
		}
		for _, c := range w.turn.Commands {
			switch c.Kind {
			case CmdAcquire:
				queue = append(queue, &Input{Kind: InGranted, Ref: c.Ref})
			case CmdDispatch:
				w.todo = append(w.todo, c)
			}
		}
	}
}

func (w *interleaving) check() error {
	if w.whole {
		return w.led.turn(&w.turn)
	}
	for i := range w.turn.Events {
		ev := &w.turn.Events[i]
		if ev.Kind == journal.EvNodeStarted {
			w.led.live[ev.Ref()] = journal.Fence{Gen: w.run.gen, Attempt: ev.Attempt}
		}
		if err := w.led.seen.Check(ev); err != nil {
			return err
		}
	}
	w.led.frames = journal.AppendFrame(w.led.frames, w.turn.Events)
	return w.led.keepJobs(w.turn.Jobs)
}

func (w *interleaving) play(what byte, order string) {
	a := journal.Ref{Step: stepNamed(w.prog.plan, "a")}
	result := &Input{Kind: InResult, Ref: a, Fence: w.first}
	switch what {
	case aWebhook:
		result.Source, result.Outcome, result.Output = journal.FromWebhook, Success, []byte(`"done"`)
	case aPoll:
		result.Source, result.Outcome, result.Err = journal.FromPoll, Failed, &Failure{Code: fault.ProviderError, Msg: "no"}
	case aSubmit, aRedeliver:
		result.Outcome, result.Job = Submitted, &Submission{Job: journal.Job{Provider: "acme", ID: "j1"}}
		if strings.ContainsRune(order, aTask) {
			if result.Job.Task = "t1"; !w.task {
				return // no worker has it
			}
		}
	case aTask:
		result.Outcome, result.Job, w.task = Submitted, &Submission{Job: journal.Job{Provider: journal.Workers, ID: "t1"}}, true
	case aCancel:
		result = &Input{Kind: InCancel, Text: "enough"}
	case aPause:
		result = &Input{Kind: InPause}
	case anUnpause:
		result = &Input{Kind: InUnpause}
	case aRetry:
		result = &Input{Kind: InRetry}
	case aCrash:
		w.restore(order)
		result = &Input{Kind: InWorkerLost, All: true}
	case anExpiry:
		w.now += 24 * 3_600_000_000
		result = &Input{Kind: InTimer}
	}
	if _, known := w.led.jobs[jobName{"acme", "j1"}]; (what == aWebhook || what == aPoll) && !known {
		result.Outcome, result.Output, result.Err = 0, nil, nil // the keeper finds no job, or one that has ended
	}
	w.feed(result, order)
}

func (w *interleaving) restore(order string) {
	back, err := Restore(w.prog, w.run.Snapshot(nil))
	if err == nil {
		err = supplyAll(back, w.led.frames)
	}
	if err != nil {
		w.t.Fatalf("in the order %s: %v", order, err)
	}
	w.run, w.led.run = back, back
}

// finish lets workers end what they have, and time pass until the run ends.
func (w *interleaving) finish(order string) {
	if w.run.Paused() {
		w.feed(&Input{Kind: InUnpause}, order)
	}
	for n := 0; !w.run.Status().Terminal(); n++ {
		switch {
		case n > 50:
			w.t.Fatalf("in the order %s: the run does not end", order)
		case len(w.todo) > 0:
			c := w.todo[0]
			w.todo = w.todo[1:]
			w.feed(&Input{Kind: InResult, Ref: c.Ref, Fence: c.Fence, Outcome: Success, Output: []byte(`1`)}, order)
		case w.run.NextDue() > 0:
			w.now = max(w.now, w.run.NextDue())
			w.feed(&Input{Kind: InTimer}, order)
		default:
			w.t.Fatalf("in the order %s: I6: nothing to do and not ended", order)
		}
	}
	if len(w.led.jobs) != 0 {
		w.t.Fatalf("in the order %s: the run has ended, and the store keeps %v", order, w.led.jobs)
	}
}
