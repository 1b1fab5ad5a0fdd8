// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A replayed is the result of replay.
type replayed struct {
	result
	At          uint64   `json:"at"`
	Last        uint64   `json:"last"`
	Snapshot    uint64   `json:"snapshot,omitempty"` // the stored state that was compared
	Imported    bool     `json:"imported,omitempty"`
	Same        bool     `json:"same"`
	Differences []string `json:"differences,omitempty"`
}

func (a *app) replayCommand() *cobra.Command {
	var at uint64
	cmd := &cobra.Command{
		Use:   "replay RUN",
		Short: "Replay a run's journal and compare it with what is stored",
		Long: "Replay a run's journal from its first event and compare the state with what is stored: the snapshot byte by byte, " +
			"the head row field by field. Exit code 1 when they differ. With --at N the state after event N is shown.",
		Example: "roux replay @last\nroux replay @last --at 12",
		Args:    wants(1, 1, "RUN [--at N]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := a.findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				r, err := replay(ctx, j, head, at)
				if err != nil {
					return err
				}
				return a.printReplay(r)
			})
		},
	}
	cmd.Flags().Uint64Var(&at, "at", 0, "show the state after this event (default the last)")
	return cmd
}

// replay folds all events, keeps the state after event at, and compares the stored
// snapshot and head with the fold.
func replay(ctx context.Context, j store.Reader, head store.Head, at uint64) (*replayed, error) {
	saved, err := j.Load(ctx, head.Key)
	if err != nil {
		return nil, err
	}
	head = saved.Head
	if at > saved.Last {
		return nil, fault.New(fault.Usage, "--at %d: the run has %d events", at, saved.Last)
	}
	p, err := store.LoadPlan(ctx, j, head)
	if err != nil {
		return nil, err
	}
	if at == 0 {
		at = saved.Last
	}
	r := &replayed{At: at, Last: saved.Last, Imported: head.Imported()}
	v, run := view.NewRun(p, head.Run), view.NewState(p)
	mask, err := maskOf(ctx, j, head, p)
	if err != nil {
		return nil, err
	}
	err = store.EachEvent(ctx, j, head.Key, 0, func(ev *journal.Event) error {
		if ev.Seq > saved.Last {
			return nil // it was written after the state was read
		}
		if err := run.Apply(ev); err != nil {
			return err
		}
		if shown := mask.Event(ev); ev.Seq <= at {
			if err := v.Apply(shown); err != nil {
				return err
			}
		}
		if ev.Seq == saved.StateLast && len(saved.State) > 0 && saved.Format == view.StateFormat {
			r.Snapshot = ev.Seq
			if got := run.Snapshot(nil); !bytes.Equal(got, saved.State) {
				r.differ("the snapshot at event %d: %d bytes stored, %d bytes folded, and they differ", ev.Seq, len(saved.State), len(got))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if run.Last() != saved.Last {
		r.differ("the journal ends at event %d, the store says %d", run.Last(), saved.Last)
	}
	r.compareHead(run, head, p)
	r.result, r.Same = resultOf(v), len(r.Differences) == 0
	return r, nil
}

func (r *replayed) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

func (r *replayed) compareHead(run *view.State, head store.Head, p *plan.Plan) {
	field := func(name string, stored, folded any) {
		if stored != folded {
			r.differ("%s: %v stored, %v folded", name, stored, folded)
		}
	}
	field("plan", plan.HashOf(head.PlanHash), p.Hash().String())
	field("status", head.Status, run.Status().String())
	field("ended", head.Ended != 0, run.Status().Terminal())
	if head.Ended != 0 {
		// Until a run ends, its row is written only when the status changes.
		field("used", head.Used, run.Used())
		field("has_failures", head.Failures, run.HasFailures())
	}
}

func (a *app) printReplay(r *replayed) error {
	a.show(r, func() {
		a.text("%s at event %d of %d: %s, %d steps\n", r.ID, r.At, r.Last, view.Join(", ", importedWord(r.Imported), r.Status), len(r.Steps))
		for _, d := range r.Differences {
			a.text("differs: %s\n", view.OneLine(d))
		}
		if r.Same {
			what := "the head row"
			if r.Snapshot > 0 {
				what = fmt.Sprintf("the snapshot at event %d and the head row", r.Snapshot)
			}
			a.text("the fold of %d events equals %s\n", r.Last, what)
		}
	})
	if !r.Same {
		return exit(fault.ExitFailed)
	}
	return nil
}
