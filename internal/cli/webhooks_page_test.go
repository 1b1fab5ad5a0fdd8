// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"testing"
)

// The receiver of the page listens on another port, too.
func TestWebhooksPage(t *testing.T) {
	receiver := freeAddress(t)
	_, port, err := net.SplitHostPort(receiver)
	if err != nil {
		t.Fatal(err)
	}
	runServed(t, freeAddress(t), servedPage{
		name: "webhooks", tools: []string{"curl", "python3"}, least: 30, first: rouxOnPath(t) + "trap 'kill $RECEIVER 2>/dev/null' EXIT\n",
		replace: []string{"127.0.0.1:8000", receiver, "receiver.py 8000", "receiver.py " + port},
	})
}
