// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/internal/store/memory"
)

func TestRunEndToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e := open(t, st, Config{}, noop())
		p := planOf(t, chain(3), noop())
		run := start(t, e, p, nil)
		head := end(t, e, run)
		if head.Status != "completed" {
			t.Errorf("run is %s (%s %s), want completed", head.Status, head.Code, head.Message)
		}
		t.Log(strings.Join(trace(t, st, p, acc, run), "\n"))
	})
}
