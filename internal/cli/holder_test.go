// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/internal/control"
	"github.com/roux-engine/roux/internal/store"
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
			h.unhook() // control.Serve below listens instead
			left := &endingHolder{Reader: h.Reader, answers: answered, leave: make(chan struct{})}
			unhook, err := control.Serve(h.dir, left, h.For, nil)
			if err != nil {
				t.Fatal(err)
			}
			var ending sync.WaitGroup
			ending.Go(func() {
				<-left.leave
				unhook()
				h.unhook = func() {}
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
	control.Reader
	answers int
	leave   chan struct{}
}

func (l *endingHolder) asked() {
	if l.answers--; l.answers < 0 {
		if l.answers == -1 {
			close(l.leave)
		}
		panic(http.ErrAbortHandler)
	}
}

func (l *endingHolder) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	l.asked()
	return l.Reader.List(ctx, q)
}

func (l *endingHolder) Plan(ctx context.Context, hash string) ([]byte, error) {
	l.asked()
	return l.Reader.Plan(ctx, hash)
}

func (l *endingHolder) Head(ctx context.Context, key store.Key) (store.Head, error) {
	l.asked()
	return l.Reader.Head(ctx, key)
}

func (l *endingHolder) Events(ctx context.Context, key store.Key, after uint64, most int) (store.Page, error) {
	l.asked()
	return l.Reader.Events(ctx, key, after, most)
}
