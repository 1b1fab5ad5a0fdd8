// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"strings"
	"testing"
)

func TestServicePage(t *testing.T) {
	address, metrics, dir := freeAddress(t), freeAddress(t), shortDir(t)
	runServed(t, address, servedPage{
		name: "service", tools: []string{"curl"}, least: 12, data: dir, args: []string{"--admin", metrics}, replace: []string{"./data/socket", dir + "/socket"},
		ended: func() {
			// X223: the runs of the page are counted, on the other listener only.
			for url, want := range map[string]string{
				"http://" + metrics + "/metrics":    `recipe_executions_total{recipe="greet",status="completed"} 1`,
				"http://" + metrics + "/readyz":     `{"status":"ok"}`,
				"http://" + address + "/metrics":    "NOT_FOUND",
				"http://" + metrics + "/v1/credits": "404",
			} {
				out, err := exec.Command("curl", "-s", url).Output()
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%s does not have %q, %v:\n%.2000s", url, want, err, out)
				}
			}
		},
	})
}
