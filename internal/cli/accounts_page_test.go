// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestAccountsPage(t *testing.T) {
	runServed(t, freeAddress(t), servedPage{name: "accounts", tools: []string{"curl"}, least: 27, first: rouxOnPath(t)})
}
