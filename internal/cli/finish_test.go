// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"
)

// A signal that arrives after all runs have ended, while the engine is being closed, is
// no error: finish returns nil, so the command has the exit code of its runs.
func TestASignalAtTheEndInterruptsNothing(t *testing.T) {
	for name, closing := range map[string]func(h *host, sigs chan os.Signal) error{
		"finish": func(h *host, sigs chan os.Signal) error { return h.finish(sigs) },
		"close":  func(h *host, sigs chan os.Signal) error { return h.close(sigs) },
	} {
		h, r := hosted(t)
		// When the signal arrives, closing is blocked, here by an upload that goes on.
		content, writer := io.Pipe()
		var uploading sync.WaitGroup
		uploading.Go(func() { _, _ = r.PutFile(t.Context(), content, "slow") }) // it is cut off
		if _, err := writer.Write([]byte("begin")); err != nil {
			t.Fatal(err)
		}
		sigs := make(chan os.Signal, 1)
		sigs <- os.Interrupt
		err := closing(h, sigs)
		_ = writer.Close()
		uploading.Wait()
		if name == "finish" && err != nil {
			t.Errorf("finish: %v", err)
		}
		if name == "close" && !errors.Is(err, errAtOnce) {
			t.Errorf("close: %v", err)
		}
	}
}
