// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// I22: steps of the server, of remote workers and of a provider of jobs share a limit of three while the
// server and the workers are killed. `go run ./sim/kill -limit` plays 500 steps, and measures, too, how
// much of the slots is used: tests must not depend on time.
func TestI22_LimitOfThreeUnderKills(t *testing.T) {
	b := counting(t)
	problems, err := b.limited(t.Context(), limitShort, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if b.kills.Load() == 0 || b.deaths.Load() == 0 {
		t.Errorf("%d kills and %d deaths: too little to prove anything", b.kills.Load(), b.deaths.Load())
	}
}

// Tokens a minute, the breaker and the budget of retries, as a provider sees them.
func TestThrottlesAsTheProviderSeesThem(t *testing.T) {
	problems, err := counting(t).throttled(t.Context(), throttleShort, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}
