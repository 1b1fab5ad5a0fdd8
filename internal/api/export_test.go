// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"
	"time"
)

// SetStreamTimes shortens the times of streams for a test. It comes before the server starts.
func SetStreamTimes(t testing.TB, beat, slow, part time.Duration) {
	a, b, c := heartbeat, slowest, parting
	heartbeat, slowest, parting = beat, slow, part
	t.Cleanup(func() { heartbeat, slowest, parting = a, b, c })
}
