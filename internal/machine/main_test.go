// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"flag"
	"os"
	"testing"
)

// TestMain sets how much the property tests draw unless the command line says
// otherwise: enough to notice the removal of each guard of docs/decisions/0003, in
// less than 15 s. A failure prints its seed (-rapid.seed), so no file is written.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "600", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
