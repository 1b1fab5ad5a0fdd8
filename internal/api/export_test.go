// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"
	"time"
)

// SetStreamTimes shortens the times of streams for a test. It comes before the server starts.
func SetStreamTimes(t testing.TB, beat, slow, part time.Duration) {
	before := streamTimes
	streamTimes = times{heartbeat: beat, slowest: slow, backup: beat, parting: part}
	t.Cleanup(func() { streamTimes = before })
}

// SetPatience shortens how long an upload may be slow. It comes before the server starts.
func SetPatience(t testing.TB, d time.Duration) {
	before := patience
	patience = d
	t.Cleanup(func() { patience = before })
}
