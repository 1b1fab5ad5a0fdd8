// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/local"
)

// The process that holds the directory may end between two requests of a command that
// follows a run, or during one: the command then reads the rest from the store.
func TestHolderEndsWhileItIsFollowed(t *testing.T) {
	for answered, question := range []string{"list", "plan", "head", "events"} {
		t.Run(question, func(t *testing.T) {
			dir := shortDir(t)
			t.Setenv("ROUX_DATA", dir)
			if _, talk, code := inProcess("", "run", write(t, "plain.yaml", plainRecipe), "-q"); code != 0 {
				t.Fatal(talk)
			}
			h, _ := hostedAt(t, dir)
			left := &endingHolder{Handler: h.svc.Local(), answers: answered, leave: make(chan struct{})}
			ln, _, err := local.Listen(h.dir) // in place of the socket of the host
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: left, ReadHeaderTimeout: time.Minute}
			go func() { _ = server.Serve(ln) }()
			var ending sync.WaitGroup
			ending.Go(func() {
				<-left.leave
				_ = server.Close()
				h.abandon() // only now may the store be read
			})
			out, talk, code := inProcess("", "events", "@last", "--follow")
			if code != 0 || strings.Count(out, "run.completed") != 1 {
				t.Errorf("exit %d: %s%s", code, out, talk)
			}
			ending.Wait()
		})
	}
}

// An endingHolder answers that many requests and cuts off the next one, as a process
// that ends would.
type endingHolder struct {
	http.Handler
	mu      sync.Mutex
	answers int
	leave   chan struct{}
}

func (l *endingHolder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.answers--
	n := l.answers
	l.mu.Unlock()
	if n == -1 {
		close(l.leave)
	}
	if n < 0 {
		panic(http.ErrAbortHandler)
	}
	l.Handler.ServeHTTP(w, r)
}

// A server that begins while a command holds the directory says so, and serves when that one
// has ended.
func TestServerWaitsForACommand(t *testing.T) {
	h, _ := hostedAt(t, filepath.Join(shortDir(t), "data"))
	var said bytes.Buffer
	waits := appAt(t, h.dir, writerFunc(func(p []byte) (int, error) {
		h.abandon() // the command ends once the server waits
		return said.Write(p)
	}))
	waits.now = func() time.Time { return time.Time{} } // it does not lose patience
	st, err := (&serve{app: waits}).openStore(t.Context(), h.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	if want := fmt.Sprintf("waiting up to 2s: process %d uses ", os.Getpid()); strings.Count(said.String(), want) != 1 {
		t.Errorf("it said %q, want %q once", said.String(), want)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
