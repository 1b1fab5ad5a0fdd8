// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/binary"
	"hash/fnv"
)

const (
	second = int64(1_000_000) // µs
	hour   = 3600 * second
	day    = 24 * hour
)

// The times at which a service is asked about a job, after its submission: the intervals are
// 30 s, 60 s, and then 120 s (X133). Each time is moved by up to a tenth of the interval that
// ends with it, so that jobs that were submitted together are not asked about together.
const (
	firstInterval  = 30 * second
	secondInterval = 60 * second
	laterInterval  = 120 * second
)

// pollAt is the n-th time at which a service is asked about a job, from 0.
func pollAt(of Digest, submitted int64, n int64) int64 {
	at, interval := submitted+firstInterval, firstInterval
	if n > 0 {
		at, interval = at+secondInterval, secondInterval
	}
	if n > 1 {
		at, interval = at+(n-1)*laterInterval, laterInterval
	}
	h := fnv.New64a()
	_, _ = h.Write(of[:])
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd // FNV alone mixes the last bytes poorly
	x ^= x >> 33
	return at + int64(x%uint64(interval/5)) - interval/10
}

// NextPoll is the first time after `after` at which the service is asked about a job, UTC µs.
// It follows from the submission alone, so that nothing is written when an answer says
// nothing new. The digest is that of the id of the job's record.
func NextPoll(of Digest, submitted, after int64) int64 {
	n := int64(0)
	if since := after - submitted - firstInterval - secondInterval; since > 2*laterInterval {
		n = since/laterInterval - 1
	}
	for ; ; n++ {
		if at := pollAt(of, submitted, n); at > after {
			return at
		}
	}
}

// backoff is how long after the n-th failure, from 1, something is tried again: 1 s, 2 s, 4 s,
// at most 5 min.
func backoff(n int) int64 {
	return min(second<<min(n-1, 20), 300*second)
}
