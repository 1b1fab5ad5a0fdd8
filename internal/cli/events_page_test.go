// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestEventsPage(t *testing.T) {
	runServed(t, freeAddress(t), servedPage{name: "events", tools: []string{"curl", "node"}, least: 13})
}
