// SPDX-License-Identifier: Apache-2.0

package conform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/conform"
)

// Each case finds a worker that does not do what the case wants: the one in Python with a fault.
func TestFaultsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	for _, tt := range []struct{ name, of, was, is string }{
		{"echo-unicode", "conform.py", "return task.input", `return {"text": str(task.input)}`},
		{"fail", "worker.py", `"code": failure.code[:60]`, `"code": "STEP_FAILED"`},
		{"progress", "worker.py", `if lease not in reporting]`, `]`},
		{"progress", "worker.py", "self._changed.notify_all()  # results may", "pass  # results may"},
		{"parallel", "conform.py", "concurrency=8", "concurrency=1"},
		{"unknown", "worker.py", `"actions": sorted(self._handlers), `, ``},
		{"long", "worker.py", `if due else []`, `if False else []`},
		{"lost-answer", "worker.py", `self._results.update(`, `list(`},
		{"submitted", "worker.py", `"submitted" if submitted else "output"`, `"output"`},
		{"lost-report-answer", "worker.py", `report["seq"] = self._seq`, `report["seq"] = 0`},
		{"retry-after", "worker.py", `max(pause, getattr(error, "retry_after", None) or 0.0)`, `pause`},
		{"restart", "worker.py", `            except _AWAY as error:
                log.warning("sending heartbeats`, `            except ZeroDivisionError as error:
                log.warning("sending heartbeats`},
		{"cancel", "worker.py", `task.cancelled.set()`, `pass`},
		{"drain", "worker.py", `        self._drain()`, `        os._exit(0)`},
		{"kill", "conform.py", "    begun = time.monotonic()\n", "    begun = time.monotonic()\n    time.sleep(60)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range []string{"worker.py", "conform.py"} {
				text, err := os.ReadFile(filepath.Join("../../workers/python", name))
				if err != nil {
					t.Fatal(err)
				}
				if name == tt.of {
					if !strings.Contains(string(text), tt.was) {
						t.Fatalf("%s has no %q", name, tt.was)
					}
					text = []byte(strings.Replace(string(text), tt.was, tt.is, 1))
				}
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cases, err := conform.Run(t.Context(), conform.Config{
				Command: []string{"python3", filepath.Join(dir, "conform.py")}, Only: []string{tt.name}, Patience: 8 * time.Second,
			})
			if err != nil || len(cases) != 1 {
				t.Fatalf("%+v, %v", cases, err)
			}
			if cases[0].OK || cases[0].Got == "" {
				t.Errorf("%+v", cases[0])
			}
			t.Log(cases[0].Got)
		})
	}
}
