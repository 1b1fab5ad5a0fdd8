// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestRemotePage(t *testing.T) {
	runServed(t, freeAddress(t), servedPage{name: "remote", least: 9, first: rouxOnPath(t)})
}
