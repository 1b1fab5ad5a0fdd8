// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/sim/meter"
)

// A round with limits of time: steps call models through the meter, which passes them on to `roux emulate llm`.
// One provider has a limit of tokens a minute, one fails for a while and has a breaker, and one fails every
// other call and has a budget of retries. Whether these hold is judged by the histogram of the meter.

// The settings of the limits.
const (
	perMinute = 60_000
	// perCall is how many tokens a call uses: a quarter of its bytes in, and as many out.
	perCall      = 200
	tokenBurst   = perMinute / 6
	breakerMin   = 10
	breakerShare = 0.5
	retryShare   = 0.2
	jitter       = time.Second // of calls on their way, on a busy machine
)

// A throttleSize is how large such a round is.
type throttleSize struct {
	idle          time.Duration // before the first call, so that the bucket is full
	calls         int           // of the provider with a limit of tokens
	killAfter     time.Duration // of the first of them; 0 = never
	flaky         int           // steps of the provider that fails for a while
	from, outage  time.Duration // when it fails, after its first call, and for how long
	open          time.Duration // of its breaker
	half          int           // first attempts of the provider that fails every other call
	floor         int           // retries a second that it gets in any case
	exact         bool          // times count, too
	callTime, gap time.Duration // of a call, and between two runs
}

var (
	throttleLong = throttleSize{idle: 12 * time.Second, calls: 400, killAfter: 50 * time.Second, flaky: 400, from: 3 * time.Second, outage: 15 * time.Second, open: 3 * time.Second,
		half: 200, floor: 5, exact: true, callTime: 100 * time.Millisecond, gap: time.Second}
	throttleShort = throttleSize{calls: 30, flaky: 60, from: 300 * time.Millisecond, outage: 2500 * time.Millisecond, open: time.Second,
		half: 40, floor: 10, callTime: 50 * time.Millisecond, gap: 200 * time.Millisecond}
)

// The providers, which are the names of recipes, too. A prompt begins with the name of the step, and is as long
// as perCall says.
var modelProviders = []string{"metered", "flaky", "half"}

// A rush is the round.
type rush struct {
	*server
	size  throttleSize
	meter *meter.Meter
	began int64 // when the first process began
	first time.Time
	mu    sync.Mutex
	gaps  []meter.Gap
}

// throttled plays the round.
func (b *bench) throttled(ctx context.Context, size throttleSize, seed uint64) (problems []string, err error) {
	r, err := b.newRound(fmt.Sprintf("throttle-%d", b.scenarios.Add(1)), seed, b.plainBinary)
	if err != nil {
		return nil, err
	}
	s, err := newServer(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("the round has not ended within 10 minutes (I6)"))
	defer cancel()
	s.end = cancel
	models, err := b.startEmulatorOf("llm", r.dir)
	if err != nil {
		return nil, err
	}
	c := &rush{server: s, size: size}
	c.meter = &meter.Meter{Do: newWebClient().Do, Models: models.url, Slow: size.callTime, Fails: c.fails}
	base, stop, err := c.meter.Start()
	if err != nil {
		return nil, errors.Join(err, models.stop())
	}
	defer func() { err = errors.Join(err, stop(), models.stop(), r.finish(problems, err)) }()
	s.env = c.environment(base)
	c.began = time.Now().UnixMicro()
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.kill9()) }()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	if len(s.bad) > 0 {
		return s.bad, nil
	}
	return c.judge(), nil
}

// environment is what a server needs for the providers and their limits.
func (c *rush) environment(base string) []string {
	var all []string
	for _, name := range modelProviders {
		all = append(all, fmt.Sprintf(`%[1]q:{"kind":"openai","url":"%[2]s/models/%[1]s/v1","key_env":"ROUX_PROVIDER_BENCH","model":"small","slots":100,"prices":{"small":{"input":0.5,"output":2}}}`, name, base))
	}
	return []string{
		"ROUX_PROVIDER_BENCH=" + providerKey, "ROUX_PROVIDERS={" + strings.Join(all, ",") + "}",
		fmt.Sprintf(`ROUX_LIMITS={"tokens":{"key":"provider == \"metered\" ? provider : \"\"","tokens_per_minute":%d},`+
			`"flaky":{"provider":"flaky","breaker":{"share":%g,"min":%d,"window":"1m","open":%q},"retries":false},"half":{"provider":"half","breaker":false,"retries":{"share":%g,"floor":"%d/s"}}}`,
			perMinute, breakerShare, breakerMin, c.size.open, retryShare, c.size.floor),
	}
}

// fails has one provider fail for a while, and every other call of another one.
func (c *rush) fails(provider string, n int, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch provider {
	case "flaky":
		if c.first.IsZero() {
			c.first = at
		}
		g := c.outage()
		return at.UnixMicro() >= g.From && at.UnixMicro() < g.To
	case "half":
		return n%2 == 0
	}
	return false
}

func (c *rush) outage() meter.Gap {
	from := c.first.Add(c.size.from)
	return meter.Gap{From: from.UnixMicro(), To: from.Add(c.size.outage).UnixMicro()}
}

// run starts the runs, kills the server once if it is to be killed, and returns when all of them have ended.
func (c *rush) run(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	for _, name := range modelProviders {
		wide := 100
		if name == "flaky" { // few at a time, so that it is healthy for a while before it fails
			wide = 2
		}
		pad := strings.Repeat("x", 4*perCall/2-len(name+".00.10000 "))
		if err := c.register(ctx, "asking", "PROVIDER", name, "WIDTH", fmt.Sprint(wide), "TOKENS", fmt.Sprint(perCall), "PADDING", pad); err != nil {
			return err
		}
	}
	if err := c.begins(ctx, "flaky", 0, c.size.flaky); err != nil {
		return err
	}
	const parts = 10
	for i := range parts {
		if err := c.begins(ctx, "half", i, c.size.half/parts); err != nil {
			return err
		}
		pauseFor(ctx, c.size.gap)
	}
	pauseFor(ctx, time.Until(time.UnixMicro(c.began).Add(c.size.idle)))
	if err := c.begins(ctx, "metered", 0, c.size.calls); err != nil {
		return err
	}
	if c.size.killAfter > 0 {
		pauseFor(ctx, c.size.killAfter)
		g := meter.Gap{From: time.Now().UnixMicro()}
		if err := c.kill9(); err != nil {
			return err
		}
		c.kills.Add(1)
		if err := c.begin(); err != nil {
			return err
		}
		g.To = time.Now().UnixMicro()
		c.gaps = append(c.gaps, g)
	}
	return c.untilEnded(ctx)
}

// begins starts the i-th run that calls a provider.
func (c *rush) begins(ctx context.Context, provider string, i, calls int) error {
	var out struct{ ExecutionID string }
	body := map[string]any{"parameters": map[string]any{"tag": fmt.Sprintf("%s.%02d.", provider, i), "numbers": make([]int, calls)}}
	if _, err := c.call(ctx, c.key, "/v1/recipes/"+provider+"/execute", fmt.Sprint(provider, i), body, &out, http.StatusAccepted, http.StatusOK); err != nil {
		return err
	}
	c.order = append(c.order, out.ExecutionID)
	return nil
}

// judge compares the histograms with the limits.
func (c *rush) judge() (problems []string) {
	bad := func(list ...string) {
		for _, p := range list {
			problems = append(problems, c.name+": "+p)
		}
	}
	spans := c.meter.Spans()
	metered := meter.Of(spans, "metered")
	had := int64(0) // the bucket was empty when the server began
	if len(metered) > 0 {
		had = min(tokenBurst, perMinute*(metered[0].Begin-c.began)/time.Minute.Microseconds())
	}
	flow, more := meter.Tokens(metered, perMinute, tokenBurst, had, c.gaps, jitter)
	bad(more...)
	fmt.Printf("%d tokens a minute: %d calls, %d tokens, at most %d within a minute, %.1f%% of what was permitted\n", perMinute, flow.Calls, flow.Tokens, flow.Minute, 100*flow.Share)
	if flow.Minute > perMinute+tokenBurst+perCall {
		bad(fmt.Sprintf("%d tokens within a minute, and %d with the burst were permitted", flow.Minute, perMinute+tokenBurst))
	}
	trip, more := meter.Breaker(meter.Of(spans, "flaky"), breakerShare, breakerMin, c.size.open, c.outage(), c.size.open/4)
	bad(more...)
	fmt.Printf("breaker: %d calls, %d failed; it opened %d times, %d calls tried the provider, and the first success came %.1f s after the outage of %s\n",
		trip.Calls, trip.Failed, trip.Opened, trip.Probes, trip.Resumed.Seconds(), c.size.outage)
	if most := int(c.size.outage/c.size.open) + 1; trip.Opened == 0 || trip.Probes == 0 || trip.Probes > most {
		bad(fmt.Sprintf("the breaker opened %d times, and %d calls tried the provider: want 1 to %d", trip.Opened, trip.Probes, most))
	}
	if trip.Calls-trip.Failed != c.size.flaky {
		bad(fmt.Sprintf("%d calls have succeeded of a provider that failed for a while, want %d", trip.Calls-trip.Failed, c.size.flaky))
	}
	load, more := meter.Retries(meter.Of(spans, "half"), retryShare, float64(c.size.floor), max(1, float64(c.size.floor)/10), c.began, jitter/2)
	bad(more...)
	fmt.Printf("retries: %d of %d first attempts, %.1f%% of what was permitted\n", load.Retries, load.First, 100*load.Share)
	if load.Retries < load.First/2 {
		bad(fmt.Sprintf("%d retries of %d first attempts, of which half have failed", load.Retries, load.First))
	}
	if !c.size.exact || busy() {
		return problems
	}
	if flow.Share < limitShare {
		bad(fmt.Sprintf("%.1f%% of the tokens were used, want %.0f%%", 100*flow.Share, 100*limitShare))
	}
	if trip.Resumed > c.size.open+jitter {
		bad(fmt.Sprintf("the first success came %s after the outage, want at most %s and a second", trip.Resumed, c.size.open))
	}
	if load.Share < limitShare {
		bad(fmt.Sprintf("%.1f%% of the retries came, want %.0f%%", 100*load.Share, 100*limitShare))
	}
	return problems
}
