// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/worker"
)

// cachedResults are the results that attempts may have in place of a call: the cache of the engine,
// over a store of its own, and what the checker knows of them.
type cachedResults struct {
	dice  *rand.Rand // its own, as that of the service
	cache *resultcache.Cache
	// made are the hashes of the results that were kept, by what those who have them must have in
	// common, written out.
	kept map[string]map[uint64]bool
}

func newCachedResults(seed uint64) cachedResults {
	return cachedResults{dice: rand.New(rand.NewPCG(seed, 0x6361636865)), kept: map[string]map[uint64]bool{}}
}

// openCache makes the cache when it is first needed.
func (w *World) openCache() *resultcache.Cache {
	if w.cachedResults.cache != nil {
		return w.cachedResults.cache
	}
	st := memory.New(memory.Options{})
	owner, err := st.Own(w.ctx())
	if err != nil {
		w.fail("a store in memory has no owner: %v", err)
	}
	w.cachedResults.cache = resultcache.New(resultcache.Config{
		Records: st, Now: func() int64 { return epoch + w.mono }, MaxResults: 20,
		Put: func(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
			return st.PutRecords(ctx, owner, epoch+w.mono, changes)
		},
	})
	return w.cachedResults.cache
}

// prepareCache prepares what an attempt asks of the cache; it asks nothing unless its step says so.
func (k *task) prepareCache(w *World) {
	if k.fail != nil {
		return
	}
	t := k.ef.Task
	var rule *plan.Cache
	var key []byte
	if rule, key, k.fail = t.Cache(); rule == nil {
		return
	}
	pin := t.Pin
	act := w.c.Actions.Find(pin.Name, pin.Version)
	if act == nil {
		act = &action.Action{Name: pin.Name, Version: pin.Version}
	}
	k.cached = w.openCache().Of(&worker.Task{Action: act, Task: action.Task{Account: k.ef.Key.Account, Run: k.ef.Key.Run, Step: t.StepPath, Input: k.input}},
		resultcache.Step{Cache: rule, Key: key, InputC: t.InputC, OutputC: t.OutputC, Files: t.Files(), Fresh: t.NoCache()})
	k.cacheScope = fmt.Sprintf("%s %s@%s %q %q %q %q", k.ef.Key.Account, pin.Name, pin.Version, k.input, t.InputC, t.OutputC, key)
}

// cachedResult returns the result that an attempt has in place of a call; ok is false if there is
// none.
func (w *World) cachedResult(k *task) (in machine.Input, ok bool) {
	if k.cached == nil || k.fail != nil {
		return in, false
	}
	hit := k.cached.Get(w.ctx())
	if hit == nil {
		return in, false
	}
	h := hashBytes(1, hit.Output)
	if !w.cachedResults.kept[k.cacheScope][h] {
		w.fail("I17: run %s: step %s has an earlier result, of run %s, that none with the same account, action and input has made",
			k.ef.Key.Run, k.ef.Task.StepPath, hit.From.Run)
	}
	k.run.reported[report{k.ef.Ref, k.ef.Fence}] = h
	return machine.Input{Kind: machine.InResult, Outcome: machine.Success, InputHash: k.hash, Output: hit.Output, Cached: &hit.From, Cost: int64(w.cachedResults.dice.IntN(3))}, true
}

// storeResult keeps the result of an attempt for later ones.
func (w *World) storeResult(k *task, in *machine.Input) {
	if k.cached == nil || in.Outcome != machine.Success || strings.Contains(string(in.Output), flagged) {
		return
	}
	k.cached.Put(w.ctx(), in.Output)
	if w.cachedResults.kept[k.cacheScope] == nil {
		w.cachedResults.kept[k.cacheScope] = map[uint64]bool{}
	}
	w.cachedResults.kept[k.cacheScope][hashBytes(1, in.Output)] = true
}
