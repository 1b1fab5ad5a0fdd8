// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestTriggersPage(t *testing.T) {
	runServed(t, freeAddress(t), servedPage{name: "triggers", tools: []string{"curl", "openssl"}, least: 30, first: rouxOnPath(t)})
}
