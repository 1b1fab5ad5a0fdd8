// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/view"
)

// checks returns all checks in their order.
func checks() []check {
	list := []check{
		{"echo-empty", "conform-echo returns its input, {}", echoes(`{}`)},
		{"echo-unicode", "text of every script and control characters come back as they were", echoes(`{"text": "ä ß 漢字 العربية 👩‍👩‍👧 \u0000\u001f\"\\\n", "ключ": ""}`)},
		{"echo-nested", "lists and objects in one another come back, null, true and false as well", echoes(`{"a": [[], {}, [{"b": [1, [2, [3, {"c": null}]]]}], true, false, ""]}`)},
		{"echo-numbers", "numbers come back, whole ones up to 9007199254740991", echoes(`{"most": 9007199254740991, "least": -9007199254740991, "large": 1.5e300, "small": 5e-324, "third": 0.3333333333333333, "zero": 0}`)},
		{"big", "an output of half a megabyte arrives", big},
		{"key", "effect key, attempt, account, run and step are those of the task", key},
		{"fail", "conform-fail ends the step with its code and message", failsWith(`{"code": "RATE_LIMITED", "message": "not so fast"}`, fault.RateLimited, "not so fast")},
		{"exception", "conform-fail without a code raises an error of the language: the step fails with STEP_FAILED and its text", failsWith(`{"message": "nobody has foreseen this"}`, fault.StepFailed, "nobody has foreseen this")},
		{"unknown-outcome", "conform-fail with outcomeUnknown ends the step as one whose effect may have happened", unknownOutcome},
		{"progress", "progress, a log line, the pieces a, b, c and a preview are events of the run", progress},
		{"file", "conform-file reads a file and stores another one", file},
		{"parallel", "two tasks are under way at once", parallel},
		{"unknown", "a task of an action that the worker does not have is left for others", unknown},
		{"long", "a task that takes longer than its lease goes on, because of heartbeats", long},
		{"lost-answer", "a result is sent again if its answer was lost", lostAnswer},
		{"submitted", "conform-submit ends its task with a job of the provider conform; that is sent again if its answer was lost", submitted},
		{"lost-report-answer", "reports are sent again if their answer was lost, with the same seq, so that none of them counts twice", lostReportAnswer},
		{"retry-after", "503 with Retry-After: 2 is sent again after 2 seconds, and not before", retryAfter},
		{"restart", "a task goes on while the server restarts, and its result is recorded", restart},
	}
	if signals {
		list = append(list,
			check{"cancel", "a heartbeat that names the lease as ended stops the task", cancelled},
			check{"drain", "after SIGTERM the task under way ends, its result is recorded, and the program exits with 0", drain})
	}
	return append(list, check{"kill", "the task of a worker that was killed is carried out by another one", killed})
}

// begin calls an action and returns the run. The client has no calls that do not wait.
func (s *session) begin(ctx context.Context, action, input string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url()+"/v1/actions/"+action+"/call", strings.NewReader(`{"async": true, "parameters": `+input+`}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.owner)
	answer := newRecorder()
	s.svc.ServeHTTP(answer, req)
	var started client.Started
	if err := json.Unmarshal(answer.body.Bytes(), &started); err != nil || started.ID == "" {
		return "", unexpected("the server does not start %s: %d %s", action, answer.status, short(answer.body.String()))
	}
	return started.ID, nil
}

// end returns a run when it has ended.
func (s *session) end(ctx context.Context, run string, within time.Duration) (*client.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := s.client.Runs.Wait(ctx, run)
	if ctx.Err() != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.leased[run]) == 0 {
			return nil, unexpected("no worker asks for the task")
		}
		return nil, unexpected("no result in %s", within)
	}
	return r, err
}

// output returns what an action has returned.
func (s *session) output(ctx context.Context, run string, within time.Duration) (json.RawMessage, error) {
	r, err := s.end(ctx, run, within)
	if err != nil {
		return nil, err
	}
	if err := r.Failure(); err != nil {
		return nil, unexpected("%s: %s", fault.CodeOf(err), short(fault.Message(err)))
	}
	var outputs struct {
		Output json.RawMessage `json:"output"`
	}
	return outputs.Output, json.Unmarshal(r.Outputs, &outputs)
}

// of calls an action and reads its output.
func (s *session) of(ctx context.Context, action, input string, to any) error {
	run, err := s.begin(ctx, action, input)
	if err != nil {
		return err
	}
	out, err := s.output(ctx, run, s.cfg.Patience)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, to)
}

// taken waits until a worker has the task of a run.
func (s *session) taken(ctx context.Context, run string) error {
	if !s.until(ctx, s.cfg.Patience, func() bool { return len(s.leased[run]) > 0 }) {
		return unexpected("no worker asks for the task")
	}
	return nil
}

// handed returns how a task of a run was handed out, once for each worker.
func (s *session) handed(run string) []lease.WorkerTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leased[run]
}

func short(text string) string { return view.OneLine(view.Cut(text, 300)) }

func echoes(input string) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		var want, got any
		if err := json.Unmarshal([]byte(input), &want); err != nil {
			return err
		}
		if err := s.of(ctx, "conform-echo", input, &got); err != nil {
			return err
		}
		if !reflect.DeepEqual(got, want) {
			text, _ := json.Marshal(got) // it was read from JSON
			return unexpected("%s", short(string(text)))
		}
		return nil
	}
}

func big(ctx context.Context, s *session) error {
	var got struct {
		Text string `json:"text"`
	}
	if err := s.of(ctx, "conform-big", `{"bytes": 500000}`, &got); err != nil {
		return err
	}
	if len(got.Text) != 500_000 {
		return unexpected("text has %d bytes", len(got.Text))
	}
	return nil
}

func key(ctx context.Context, s *session) error {
	run, err := s.begin(ctx, "conform-key", `{}`)
	if err != nil {
		return err
	}
	out, err := s.output(ctx, run, s.cfg.Patience)
	if err != nil {
		return err
	}
	type fields struct {
		EffectKey string `json:"effectKey"`
		Attempt   int    `json:"attempt"`
		Account   string `json:"account"`
		Run       string `json:"run"`
		Step      string `json:"step"`
	}
	var got fields
	task := s.handed(run)[0]
	want := fields{task.EffectKey, task.Attempt, task.Account, task.Run, task.Step}
	if err := json.Unmarshal(out, &got); err != nil || got != want {
		return unexpected("%s", short(string(out)))
	}
	return nil
}

func failsWith(input string, code fault.Code, text string) func(context.Context, *session) error {
	return func(ctx context.Context, s *session) error {
		run, err := s.begin(ctx, "conform-fail", input)
		if err != nil {
			return err
		}
		r, err := s.end(ctx, run, s.cfg.Patience)
		if err != nil {
			return err
		}
		if r.Error == nil {
			return unexpected("the run is %s", r.Status)
		}
		if r.Error.Code != code || !strings.Contains(r.Error.Message, text) {
			return unexpected("%s: %s", r.Error.Code, short(r.Error.Message))
		}
		return nil
	}
}

func unknownOutcome(ctx context.Context, s *session) error {
	const input = `{"code": "SERVICE_UNAVAILABLE", "message": "the connection broke", "outcomeUnknown": true}`
	if err := failsWith(input, fault.ServiceUnavailable, "the connection broke")(ctx, s); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unknown {
		return unexpected("the result has no outcomeUnknown")
	}
	return nil
}

func progress(ctx context.Context, s *session) error {
	run, err := s.begin(ctx, "conform-progress", `{}`)
	if err != nil {
		return err
	}
	// A result that waits for the next request for tasks is late.
	if _, err := s.output(ctx, run, min(s.cfg.Patience, 10*time.Second)); err != nil {
		return err
	}
	var all, deltas string
	for e, err := range s.client.Runs.Events(ctx, run, client.EventOptions{Every: true}) {
		if err != nil {
			return err
		}
		var p struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(e.Payload, &p); err == nil && e.Type == "node.stream.delta" {
			deltas += p.Text
		}
		all += e.Type + " " + string(e.Payload) + "\n"
	}
	for _, want := range []string{"node.progress ", "0.75", "node.log ", "a line of the log", "node.preview ", `"so":"far"`} {
		if !strings.Contains(all, want) {
			return unexpected("no event of the run has %q", strings.TrimSpace(want))
		}
	}
	if deltas != "abc" {
		return unexpected("the pieces together are %q", short(deltas))
	}
	return nil
}

func file(ctx context.Context, s *session) error {
	content := strings.Repeat("what a worker reads, it may write\n", 10_000)
	f, err := s.client.Files.Upload(ctx, strings.NewReader(content), client.UploadOptions{Name: "lower.txt"})
	if err != nil {
		return err
	}
	var got struct {
		Size  int    `json:"size"`
		Upper string `json:"upper"`
	}
	if err := s.of(ctx, "conform-file", `{"file": "`+f.Hash+`"}`, &got); err != nil {
		return err
	}
	if got.Size != len(content) {
		return unexpected("size is %d, of a file of %d bytes", got.Size, len(content))
	}
	var upper bytes.Buffer
	if _, err := s.client.Files.Download(ctx, got.Upper, &upper); err != nil {
		return unexpected("upper %q: %s", short(got.Upper), fault.Message(err))
	}
	if upper.String() != strings.ToUpper(content) {
		return unexpected("the stored file has other content")
	}
	return nil
}

// slow begins a task that takes a time, and returns when a worker has it.
func (s *session) slow(ctx context.Context, ms string) (run string, err error) {
	if run, err = s.begin(ctx, "conform-slow", `{"ms": `+ms+`}`); err != nil {
		return "", err
	}
	return run, s.taken(ctx, run)
}

func parallel(ctx context.Context, s *session) error {
	first, err := s.slow(ctx, "4000")
	if err != nil {
		return err
	}
	second, err := s.begin(ctx, "conform-slow", `{"ms": 4000}`)
	if err != nil {
		return err
	}
	if err := s.taken(ctx, second); err != nil {
		return err
	}
	for _, run := range []string{first, second} {
		if _, err := s.output(ctx, run, s.cfg.Patience); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A worker of one task may ask for the second one while it sends the result of the first.
	if ended := s.sent[s.leased[first][0].Lease]; len(ended) == 0 || ended[0].Sub(s.given[second]) < time.Second {
		return unexpected("it asks for the second task when the first one has ended")
	}
	return nil
}

func unknown(ctx context.Context, s *session) error {
	run, err := s.begin(ctx, "conform-unknown", `{}`)
	if err != nil {
		return err
	}
	// Those that come later are carried out, so it was left on purpose.
	for range 2 {
		if err := s.of(ctx, "conform-echo", `{}`, new(any)); err != nil {
			return err
		}
	}
	if len(s.handed(run)) > 0 {
		return unexpected("it asks for tasks of every action of the queue")
	}
	_, err = s.client.Runs.Cancel(ctx, run, client.Reason{})
	return err
}

// whole decides about a task that took some time: one worker had it, and all of that time.
func (s *session) whole(ctx context.Context, run string, ms float64) error {
	out, err := s.output(ctx, run, s.cfg.Patience)
	if err != nil {
		return err
	}
	var got struct {
		Slept float64 `json:"slept"`
	}
	if err := json.Unmarshal(out, &got); err != nil || got.Slept < ms*0.9 {
		return unexpected("%s", short(string(out)))
	}
	if n := len(s.handed(run)); n != 1 {
		return unexpected("its lease of %s lapsed: the task was handed out %d times", leaseTime, n)
	}
	return nil
}

func long(ctx context.Context, s *session) error {
	run, err := s.slow(ctx, "6000")
	if err != nil {
		return err
	}
	return s.whole(ctx, run, 6000)
}

// restart is tried again if the machine is so busy that the worker may have missed its lease for that reason:
// stopping and starting the server has taken as long as a part of one.
func restart(ctx context.Context, s *session) error {
	for tries := 1; ; tries++ {
		run, err := s.slow(ctx, "8000")
		if err != nil {
			return err
		}
		const pause = leaseTime / 2 // a heartbeat fails
		began := time.Now()
		if err := s.stop(); err != nil {
			return err
		}
		time.Sleep(pause)
		if err := s.start(ctx); err != nil {
			return err
		}
		busy := time.Since(began)-pause > leaseTime/4
		if err := s.whole(ctx, run, 8000); err == nil || !busy || tries == 3 {
			return err
		}
	}
}

// results returns when the result of a run was sent, once it was sent that often.
func (s *session) results(ctx context.Context, run string, times int) (at []time.Time) {
	s.until(ctx, s.cfg.Patience, func() bool {
		at = nil
		for _, t := range s.leased[run] {
			at = append(at, s.sent[t.Lease]...)
		}
		return len(at) >= times
	})
	return at
}

func lostAnswer(ctx context.Context, s *session) error {
	s.fault(faults{loseResults: true})
	run, err := s.begin(ctx, "conform-echo", `{}`)
	if err != nil {
		return err
	}
	if n := len(s.results(ctx, run, 2)); n < 2 {
		return unexpected("it was sent %d times", n)
	}
	if _, err := s.output(ctx, run, s.cfg.Patience); err != nil {
		return err
	}
	return s.of(ctx, "conform-echo", `{}`, new(any)) // it goes on
}

func submitted(ctx context.Context, s *session) error {
	s.fault(faults{loseResults: true})
	run, err := s.begin(ctx, "conform-submit", `{"job": "job_7"}`)
	if err != nil {
		return err
	}
	if n := len(s.results(ctx, run, 2)); n < 2 {
		return unexpected("it was sent %d times", n)
	}
	if _, err := s.client.ExternalJobs.Poll(ctx, provider, "job_7"); err != nil {
		return unexpected("no step waits for the job: %s", short(fault.Message(err)))
	}
	var got struct {
		Ended  string `json:"ended"`
		Within string `json:"within"`
	}
	out, err := s.output(ctx, run, s.cfg.Patience)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, &got); err != nil || got.Ended != "job_7" || got.Within != "10m0s" {
		return unexpected("%s", short(string(out)))
	}
	return s.of(ctx, "conform-echo", `{}`, new(any)) // it goes on
}

func lostReportAnswer(ctx context.Context, s *session) error {
	s.fault(faults{loseReports: true})
	return progress(ctx, s)
}

func retryAfter(ctx context.Context, s *session) error {
	const pause = 2 * time.Second
	s.fault(faults{busy: pause})
	run, err := s.begin(ctx, "conform-echo", `{}`)
	if err != nil {
		return err
	}
	at := s.results(ctx, run, 2)
	if len(at) < 2 {
		return unexpected("it was sent %d times", len(at))
	}
	if after := at[1].Sub(at[0]); after < pause-50*time.Millisecond {
		return unexpected("it was sent again after %s", after.Round(time.Millisecond))
	}
	_, err = s.output(ctx, run, s.cfg.Patience)
	return err
}

func cancelled(ctx context.Context, s *session) error {
	run, err := s.slow(ctx, "600000")
	if err != nil {
		return err
	}
	if _, err := s.client.Runs.Cancel(ctx, run, client.Reason{}); err != nil {
		return err
	}
	token := s.handed(run)[0].Lease
	if !s.until(ctx, 3*leaseTime, func() bool { return s.ended[token] }) {
		return unexpected("no heartbeat of it was told that the lease is over")
	}
	// A worker without tasks ends at once.
	if err := s.terminated(ctx, 10*time.Second); err != nil {
		s.kill()
		return unexpected("the task goes on: %w", err)
	}
	return nil
}

func drain(ctx context.Context, s *session) error {
	run, err := s.slow(ctx, "3000")
	if err != nil {
		return err
	}
	if err := s.terminated(ctx, s.cfg.Patience); err != nil {
		s.kill()
		return err
	}
	if len(s.results(ctx, run, 1)) == 0 {
		return unexpected("it ended without the result of its task")
	}
	return s.whole(ctx, run, 3000)
}

func killed(ctx context.Context, s *session) error {
	run, err := s.slow(ctx, "3000")
	if err != nil {
		return err
	}
	s.kill()
	if err := s.ready(ctx); err != nil {
		return err
	}
	if _, err := s.output(ctx, run, s.cfg.Patience); err != nil {
		return err
	}
	if all := s.handed(run); len(all) != 2 || all[0].EffectKey != all[1].EffectKey {
		return unexpected("it was handed out %d times", len(all))
	}
	return nil
}
