// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestApprovalsPage(t *testing.T) {
	runServed(t, freeAddress(t), servedPage{name: "approvals", tools: []string{"curl", "sed"}, least: 15, first: rouxOnPath(t)})
}
