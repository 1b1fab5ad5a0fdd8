// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"testing"
)

// A signal that arrives after all runs have ended, while the engine is being closed, is
// no error: finish returns nil, so the command has the exit code of its runs.
func TestASignalAtTheEndInterruptsNothing(t *testing.T) {
	for name, closing := range map[string]func(h *host, sigs chan os.Signal) error{
		"finish": func(h *host, sigs chan os.Signal) error { return h.finish(sigs) },
		"close":  func(h *host, sigs chan os.Signal) error { return h.close(sigs) },
	} {
		h, _ := hosted(t)
		// When the signal arrives, closing is blocked, here on closing the socket.
		release := make(chan struct{})
		unhook := h.unhook
		h.unhook = func() {
			<-release
			unhook()
		}
		sigs := make(chan os.Signal, 1)
		sigs <- os.Interrupt
		err := closing(h, sigs)
		close(release)
		if name == "finish" && err != nil {
			t.Errorf("finish: %v", err)
		}
		if name == "close" && !errors.Is(err, errAtOnce) {
			t.Errorf("close: %v", err)
		}
	}
}
