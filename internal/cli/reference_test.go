// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

const largeOutput = `name: large-output
steps:
  - {id: read, action: {name: large, parameters: {bytes: 3145728}}, outputBinding: doc}
  - {id: pause, wait: {duration: 300ms}}
  - {id: count, action: {name: word-count, parameters: {text: "{{ doc.text }}"}}, outputBinding: counted}
outputs: {text: doc.text, size: doc.text.size, counted: counted.codePoints}
`

// A large output is stored in a file that is durable before the step is recorded. A
// kill between that step and the one that uses the output changes nothing.
func TestKill9BesideALargeOutput(t *testing.T) {
	var outputs []string
	for _, kill := range []bool{false, true} {
		_, env := dataEnv(t)
		p := start(t, env, "run", write(t, "large.yaml", largeOutput))
		if kill {
			p.until("node.waiting")
			p.signal(os.Kill)
			p.wait()
			p = start(t, env, "resume")
		}
		if code := p.wait(); code != fault.ExitOK {
			t.Fatalf("kill %t: exit code %d\n%s", kill, code, p.said())
		}
		r := object[struct {
			Status  string
			Outputs json.RawMessage
		}](t, env, "runs", "get", "@last")
		outputs = append(outputs, string(r.Outputs))
		if re := object[replayed](t, env, "replay", "@last"); r.Status != "completed" || !re.Same {
			t.Errorf("kill %t: %s, replay %v", kill, r.Status, re.Differences)
		}
	}
	if outputs[0] != outputs[1] || strings.Count(outputs[0], "3145736") != 4 || !strings.Contains(outputs[0], `"$roux"`) {
		t.Errorf("outputs %s\nand with a kill %s", outputs[0], outputs[1])
	}
}
