// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"net/http"
	"time"
)

// RetryAfter reads Retry-After, in seconds or as an HTTP date, and returns
// milliseconds; 0 where it is missing, invalid or in the past. More than an
// hour counts as an hour, which is also the engine's limit.
func RetryAfter(value string, now time.Time) int64 {
	const most = int64(time.Hour / time.Millisecond)
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now).Milliseconds(), 0), most)
	}
	ms := int64(0)
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0
		}
		ms = min(ms*10+int64(c-'0')*1000, most)
	}
	return ms
}
