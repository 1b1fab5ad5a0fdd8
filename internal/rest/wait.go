// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strconv"
	"strings"
	"time"
)

// maxWait is how long a request may wait for the end of a run.
const maxWait = 60 * time.Second

// WaitFor returns how long a start waits for the end of its run.
func WaitFor(prefer string, async *bool) (d time.Duration, applied string) {
	for _, p := range strings.Split(prefer, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		if n, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`)); err == nil && n > 0 {
			d = min(time.Duration(n)*time.Second, maxWait)
			return d, "wait=" + strconv.Itoa(int(d.Seconds()))
		}
	}
	if async != nil && !*async {
		return maxWait, "wait=60"
	}
	return 0, ""
}
