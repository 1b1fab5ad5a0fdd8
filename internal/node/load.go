// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/slots"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/webhook"
)

// A Load is what a node does now. Reading it costs the same however many runs there are.
type Load struct {
	StartedAt time.Time       `json:"startedAt"`
	Runs      RunLoad         `json:"runs" doc:"Runs that have not ended, without those inside others."`
	Accounts  []AccountLoad   `json:"accounts" doc:"The accounts with most runs that have not ended, at most ten."`
	Attempts  AttemptLoad     `json:"attempts"`
	Limits    []LimitLoad     `json:"limits" doc:"Limits of attempts that are in use; the last one is that of the engine."`
	Commits   CommitLoad      `json:"commits"`
	Queues    QueueLoad       `json:"queues"`
	Memory    MemoryLoad      `json:"memory"`
	Store     StoreLoad       `json:"store"`
	Failures  []RecentFailure `json:"failures" doc:"The last runs and commits that have failed since the start, at most eight, the newest first."`
}

// A RunLoad counts runs that have not ended.
type RunLoad struct {
	Live     int            `json:"live" doc:"Runs that are not queued."`
	Queued   int            `json:"queued" doc:"Runs that wait because their account has enough live ones."`
	States   map[string]int `json:"states" doc:"All of them by state: their status, or quarantined."`
	Complete bool           `json:"complete" doc:"false = there are more, because only the first 10,000 are counted."`
	Loaded   int            `json:"loaded" doc:"Runs in memory, with those inside others."`
}

// An AccountLoad counts runs of an account that have not ended.
type AccountLoad struct {
	Account string `json:"account"`
	Live    int    `json:"live"`
	Queued  int    `json:"queued"`
}

// An AttemptLoad is about attempts of steps.
type AttemptLoad struct {
	Running   int            `json:"running"`
	ByAction  map[string]int `json:"byAction" doc:"Those that run."`
	Finished  uint64         `json:"finished" doc:"Since the start."`
	PerSecond float64        `json:"perSecond" doc:"Finished ones, over the last ten seconds."`
}

// A LimitLoad is how far a limit of attempts is used.
type LimitLoad struct {
	Of      string `json:"of" enum:"engine,action,provider,limit,pause,retries" doc:"A pause and retries are of a provider."`
	Name    string `json:"name,omitempty" doc:"Of the action, the provider or the limit."`
	Key     string `json:"key,omitempty" doc:"Of the limit; of a pause it is the account."`
	Slots   int    `json:"slots" doc:"0 = it limits when attempts begin."`
	Used    int    `json:"used"`
	Waiting int    `json:"waiting" doc:"Steps that wait there."`
	Until   string `json:"until,omitempty" format:"date-time" doc:"Until when nothing begins. Absent: not known, or something does."`
}

// A CommitLoad is about commits, which every change waits for. Rates and durations are those of
// the last ten seconds.
type CommitLoad struct {
	Total     uint64  `json:"total" doc:"Since the start."`
	Failed    uint64  `json:"failed" doc:"Since the start."`
	PerSecond float64 `json:"perSecond"`
	MedianMS  float64 `json:"medianMs"`
	P99MS     float64 `json:"p99Ms"`
	SlowestMS float64 `json:"slowestMs"`
}

// A QueueLoad is what waits inside.
type QueueLoad struct {
	Requests int64 `json:"requests" doc:"Requests that wait until they are durable."`
	Inputs   int64 `json:"inputs" doc:"Requests, results and reports that have arrived and are not handled yet."`
	Feed     int   `json:"feed" doc:"Commits of runs that are not delivered to their watchers yet."`
}

// A MemoryLoad is about the memory of the process.
type MemoryLoad struct {
	HeapBytes  uint64 `json:"heapBytes" doc:"Of values, those included that are no longer used and not freed yet."`
	TotalBytes uint64 `json:"totalBytes" doc:"Obtained from the system and not given back."`
	Goroutines int    `json:"goroutines"`
}

// A StoreLoad is about the store.
type StoreLoad struct {
	JournalBytes int64 `json:"journalBytes" doc:"Without what was moved into chunks."`
	LogBytes     int64 `json:"logBytes" doc:"Size of the write-ahead log of the database."`
}

// A RecentFailure is a run that has failed or was quarantined, or a commit that has failed.
type RecentFailure struct {
	At      time.Time  `json:"at"`
	Code    fault.Code `json:"code"`
	Account string     `json:"account,omitempty" doc:"Absent: it was a commit."`
	RunID   string     `json:"runId,omitempty"`
	Recipe  string     `json:"recipe,omitempty"`
}

const (
	// mostCounted is how many runs are counted at most, and countedFor how long the numbers
	// are used again, however many people look.
	mostCounted = 10_000
	countedFor  = time.Second
	// mostAccounts is how many accounts are listed.
	mostAccounts = 10
)

// counted are numbers of runs as they were read.
type counted struct {
	at       time.Time
	runs     RunLoad
	accounts []AccountLoad
}

// Load returns what the node does now. It does not wait for the engine.
func (n *Node) Load(ctx context.Context) (*Load, error) {
	c, err := n.count(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := n.Store.Stats(ctx)
	if err != nil {
		return nil, err
	}
	e := n.Engine.Load()
	p := n.Engine.Feed().Pace(e.Finished)
	out := &Load{
		StartedAt: n.opened.UTC(), Runs: c.runs, Accounts: c.accounts,
		Attempts: AttemptLoad{Running: e.Attempts, ByAction: e.ByAction, Finished: e.Finished, PerSecond: p.AttemptsPerSecond},
		Limits:   []LimitLoad{},
		Commits: CommitLoad{
			Total: p.Commits, Failed: p.Failed, PerSecond: p.CommitsPerSecond,
			MedianMS: millis(p.Median), P99MS: millis(p.P99), SlowestMS: millis(p.Slowest),
		},
		Queues:   QueueLoad{Requests: e.Requests, Inputs: e.Inputs, Feed: e.Lag},
		Memory:   memory(),
		Store:    StoreLoad{JournalBytes: stats.JournalBytes, LogBytes: n.Config.logSize()},
		Failures: make([]RecentFailure, len(p.Failures)),
	}
	out.Runs.Loaded = e.Loaded
	for _, u := range mostWaiting(n.Engine.Slots()) {
		l := LimitLoad{Of: u.Of, Name: u.Name, Key: u.Key, Slots: u.Slots, Used: u.InUse, Waiting: u.Waiting}
		if u.Until > time.Now().UnixMicro() {
			l.Until = time.UnixMicro(u.Until).UTC().Format(time.RFC3339)
		}
		out.Limits = append(out.Limits, l)
	}
	for i := range p.Failures {
		f := &p.Failures[i]
		out.Failures[i] = RecentFailure{At: f.At.UTC(), Code: f.Code, Account: f.Key.Account, RunID: f.Key.Run, Recipe: f.Recipe}
	}
	return out, nil
}

// mostKeys is how many limits of keys are listed.
const mostKeys = 50

// mostWaiting leaves out limits of keys beyond mostKeys, those first for which least waits.
func mostWaiting(all []slots.Usage) []slots.Usage {
	var waiting []int
	for _, u := range all {
		if u.Key != "" {
			waiting = append(waiting, u.Waiting)
		}
	}
	if len(waiting) <= mostKeys {
		return all
	}
	slices.Sort(waiting)
	least, n := waiting[len(waiting)-mostKeys], 0
	return slices.DeleteFunc(all, func(u slots.Usage) bool {
		if u.Key == "" {
			return false
		}
		n++
		return u.Waiting < least || n > 2*mostKeys
	})
}

// limitSums are the states of limits without their keys, of which there may be many.
func limitSums(all []slots.Usage) (sums []feed.LimitSum) {
	for _, u := range all {
		if i := len(sums) - 1; i >= 0 && sums[i].Of == u.Of && sums[i].Name == u.Name {
			sums[i].InUse, sums[i].Waiting = sums[i].InUse+u.InUse, sums[i].Waiting+u.Waiting
			continue
		}
		sums = append(sums, feed.LimitSum{Of: u.Of, Name: u.Name, InUse: u.InUse, Waiting: u.Waiting})
	}
	return sums
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// count counts the runs that have not ended.
func (n *Node) count(ctx context.Context) (counted, error) {
	n.counting.Lock()
	defer n.counting.Unlock()
	if !n.counted.at.IsZero() && time.Since(n.counted.at) < countedFor {
		return n.counted, nil
	}
	runs, accounts, err := CountRuns(ctx, n.Store)
	if err != nil {
		return counted{}, err
	}
	n.counted = counted{time.Now(), runs, accounts}
	return n.counted, nil
}

// CountRuns counts the runs of a store that have not ended. Accounts of the service itself are
// not listed, because its users do not know their names.
func CountRuns(ctx context.Context, st Store) (runs RunLoad, most []AccountLoad, err error) {
	states, complete, err := st.UnendedStates(ctx, mostCounted)
	if err != nil {
		return RunLoad{}, nil, err
	}
	runs = RunLoad{States: map[string]int{}, Complete: complete}
	accounts := map[string]*AccountLoad{}
	for i := range states {
		s := &states[i]
		runs.States[s.State] += s.Runs
		a := accounts[s.Account]
		if a == nil {
			a = &AccountLoad{Account: s.Account}
			accounts[s.Account] = a
		}
		if s.State == store.StatusQueued {
			a.Queued, runs.Queued = a.Queued+s.Runs, runs.Queued+s.Runs
		} else {
			a.Live, runs.Live = a.Live+s.Runs, runs.Live+s.Runs
		}
	}
	all := slices.SortedFunc(maps.Values(accounts), func(x, y *AccountLoad) int {
		return cmp.Or(cmp.Compare(y.Live+y.Queued, x.Live+x.Queued), cmp.Compare(x.Account, y.Account))
	})
	most = []AccountLoad{}
	for _, a := range all {
		if len(most) < mostAccounts && !webhook.Internal(a.Account) {
			most = append(most, *a)
		}
	}
	return runs, most, nil
}

// memory returns what the process takes. Unlike runtime.ReadMemStats it stops nothing.
func memory() MemoryLoad {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return MemoryLoad{HeapBytes: samples[0].Value.Uint64(), TotalBytes: samples[1].Value.Uint64() - samples[2].Value.Uint64(), Goroutines: runtime.NumGoroutine()}
}
