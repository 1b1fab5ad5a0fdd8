// SPDX-License-Identifier: Apache-2.0

package term

import "testing"

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 9_949: "9.9 kB", 9_950: "10 kB", 999_499: "999 kB", 999_500: "1.0 MB",
		2 << 30: "2.1 GB", 16 << 30: "17 GB", 5_000_000_000_000: "5.0 TB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
