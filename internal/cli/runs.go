// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) runsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, inspect and control runs",
		Example: `roux runs list --status failed
roux runs get @last
roux runs cancel run_01K3`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.listCommand(), a.getCommand(), a.cancelCommand(), a.retryCommand(), a.signalCommand(), a.pauseCommand(), a.unpauseCommand(), a.releaseCommand(), a.deleteRunsCommand())
	cmd.AddCommand(a.adoptCommands()...)
	return cmd
}

// A headView is a run in a list.
type headView struct {
	ID         string     `json:"id"`
	Recipe     string     `json:"recipe"`
	Version    string     `json:"version,omitempty"`
	Status     string     `json:"status"`
	CreatedAt  string     `json:"createdAt"` // "" when that is damaged
	EndedAt    string     `json:"endedAt,omitempty"`
	Used       int64      `json:"used"`
	Failures   bool       `json:"has_failures,omitempty"`
	Quarantine string     `json:"quarantined,omitempty"`
	Imported   bool       `json:"imported,omitempty"`
	Parent     string     `json:"parentRunId,omitempty"` // of a child run
	Root       string     `json:"rootRunId,omitempty"`
	Code       fault.Code `json:"code,omitempty"`
	Message    string     `json:"message,omitempty"`
}

// damagedStatus replaces the status of a run whose head is damaged.
const damagedStatus = "damaged"

func viewOfHead(h store.Head) headView {
	if h.Damage != "" {
		return headView{ID: h.Run, Status: damagedStatus, Code: fault.StoreCorrupt, Message: h.Damage}
	}
	v := headView{
		ID: h.Run, Recipe: h.Recipe, Version: h.Version, Status: h.Status, CreatedAt: view.Stamp(h.Created),
		Used: h.Used, Failures: h.Failures, Quarantine: quarantineOf(h), Imported: h.Imported(), Code: h.Code, Message: h.Message,
		Parent: h.Parent, Root: h.Root,
	}
	if h.Ended != 0 {
		v.EndedAt = view.Stamp(h.Ended)
	}
	return v
}

// quarantineOf returns why a run is quarantined. An imported run that has ended is
// not shown as quarantined.
func quarantineOf(h store.Head) string {
	if h.Imported() && h.Ended != 0 {
		return ""
	}
	return h.Quarantine
}

func (a *app) listCommand() *cobra.Command {
	var q store.Query
	var since time.Duration
	var of string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Long: "List runs, newest first. Child runs are listed with --children alone. A run whose row in the store is damaged is listed as damaged, also by --status and --recipe where the " +
			"damage may hide what it was, and the exit code is 70; `roux doctor` tells what else is wrong.",
		Example: "roux runs list --status failed --since 24h",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Account = a.account
			if q.Status != "" && !knownStatus(q.Status) {
				return fault.New(fault.Usage, "--status %s: want one of %s", q.Status, strings.Join(statuses(), ", "))
			}
			if q.Limit < 1 || q.Limit > 500 {
				return fault.New(fault.Usage, "--limit %d: want 1 to 500", q.Limit)
			}
			if since > 0 {
				q.Since = a.now().Add(-since).UnixMicro()
			}
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				if of != "" {
					head, err := a.findRun(ctx, j, of)
					if err != nil {
						return err
					}
					q.Parent = head.Run
				}
				heads, err := j.List(ctx, q)
				if err != nil {
					return err
				}
				hideTexts(ctx, j, heads)
				a.printHeads(heads)
				if n := damagedIn(heads); n > 0 {
					a.say("%s damaged: `%s` tells what else is, and a backup has the whole", view.CountAre(n, "run"), a.hint("doctor", ""))
					return exit(fault.ExitInternal)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&q.Status, "status", "", "only runs of this status")
	cmd.Flags().StringVar(&q.Recipe, "recipe", "", "only runs of this recipe")
	cmd.Flags().DurationVar(&since, "since", 0, "only runs created in this time, such as 24h")
	cmd.Flags().StringVar(&of, "children", "", "only the child runs of this run, oldest first")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "at most this many")
	return cmd
}

// hideTexts hides the messages of runs whose recipe marks inputs as writeOnly, and
// why they are quarantined. They may contain such a value, and only the journal,
// which a list does not read, has the values. A plan that cannot be read may mark
// inputs too.
func hideTexts(ctx context.Context, j store.Reader, heads []store.Head) {
	if _, ok := j.(*remote.Server); ok {
		return // it hides them itself
	}
	m := masks.NewHeads(j)
	for i := range heads {
		m.Hide(ctx, &heads[i])
	}
}

// damagedIn counts the damaged heads.
func damagedIn(heads []store.Head) (n int) {
	for _, h := range heads {
		if h.Damage != "" {
			n++
		}
	}
	return n
}

func (a *app) printHeads(heads []store.Head) {
	views := make([]headView, len(heads))
	for i, h := range heads {
		views[i] = viewOfHead(h)
	}
	a.show(views, func() {
		if len(heads) == 0 {
			a.say("no runs here yet: `roux run FILE` starts one")
			return
		}
		rows := [][]string{{"ID", "RECIPE", "STATUS", "CREATED", "TOOK", "USED", ""}}
		for _, h := range heads {
			if h.Damage != "" {
				rows = append(rows, []string{view.OneLine(h.Run), "", damagedStatus, "", "", "", string(fault.StoreCorrupt)})
				continue
			}
			end := h.Ended
			if end == 0 {
				end = a.now().UnixMicro()
			}
			note := view.OneLine(view.Cut(h.Message, 60))
			status := h.Status
			switch why := quarantineOf(h); {
			case why != "":
				status, note = "quarantined", view.OneLine(view.Cut(why, 60))
			case h.Imported():
				note = view.Join(": ", store.ImportedReason, note)
			}
			rows = append(rows, []string{
				h.Run, view.OneLine(view.Cut(h.Recipe, 32)), status, a.when(h.Created),
				view.Took(time.Duration(end-h.Created) * time.Microsecond), fmt.Sprint(h.Used), note,
			})
		}
		a.table(rows, 6, 1)
	})
}

func statuses() (names []string) {
	for s := journal.RunPending; s <= journal.RunExpired; s++ {
		names = append(names, s.String())
	}
	return names
}

func knownStatus(s string) bool {
	for _, n := range statuses() {
		if n == s {
			return true
		}
	}
	return false
}

// A fullView is a run as `runs get` shows it.
type fullView struct {
	result
	Recipe      string    `json:"recipe"`
	Version     string    `json:"version,omitempty"`
	CreatedAt   string    `json:"createdAt"`
	EndedAt     string    `json:"endedAt,omitempty"`
	Generation  uint32    `json:"generation"`
	WaitState   string    `json:"wait_state"`
	ResumeToken string    `json:"resume_token"`
	Failures    bool      `json:"has_failures"`
	Quarantine  string    `json:"quarantined,omitempty"`
	Paused      bool      `json:"paused,omitempty"`
	Imported    bool      `json:"imported,omitempty"`
	Plan        string    `json:"plan"`
	Events      uint64    `json:"events"`
	Waits       *unfunded `json:"waitsForCredits,omitempty"`
	// Parent and Root are those of a child run, and Children counts the child runs by status.
	Parent   string         `json:"parentRunId,omitempty"`
	Root     string         `json:"rootRunId,omitempty"`
	Children map[string]int `json:"children,omitempty"`
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "get RUN",
		Short:   "Show a run: status, steps, outputs",
		Example: "roux runs get @last\nroux runs get @last-failed -o json",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readingAll(cmd.Context(), func(ctx context.Context, r remote.Reader) error {
				head, err := a.findRun(ctx, r, args[0])
				if err != nil {
					return err
				}
				v, run, err := stateOf(ctx, r, head)
				if err != nil {
					return err
				}
				full := fullView{
					result: resultOf(v), Recipe: head.Recipe, Version: head.Version, CreatedAt: view.Stamp(head.Created),
					Generation: run.Generation(), WaitState: run.WaitState(), ResumeToken: run.ResumeToken(),
					Failures: head.Failures, Quarantine: quarantineOf(head), Paused: v.Paused, Imported: head.Imported(), Plan: plan.HashOf(head.PlanHash), Events: v.Events,
				}
				full.Parent, full.Root, full.Children = head.Parent, head.Root, v.Children
				if head.Ended != 0 {
					full.EndedAt = view.Stamp(head.Ended)
				}
				if full.Waits, err = a.unfunded(ctx, r, head, v, run); err != nil {
					return err
				}
				a.show(full, func() { a.printRun(v, full, head) })
				return nil
			})
		},
	}
}

// stateOf folds the journal of a run into its view and, in the same pass, into the
// state of the machine, which alone has what the run waits for.
func stateOf(ctx context.Context, j store.Reader, head store.Head) (*view.Run, *view.State, error) {
	p, err := store.LoadPlan(ctx, j, head)
	if err != nil {
		return nil, nil, err
	}
	v, run := view.NewRun(p, head.Run), view.NewState(p)
	mask, err := maskOf(ctx, j, head, p)
	if err != nil {
		return nil, nil, err
	}
	err = store.EachEvent(ctx, j, head.Key, 0, func(ev *journal.Event) error {
		if err := run.Apply(ev); err != nil {
			return err
		}
		return v.Apply(mask.Event(ev))
	})
	if err != nil {
		return nil, nil, err
	}
	return v, run, nil
}

// upTo says until when a step waits for a person at most.
func upTo(s *view.Step) string {
	if s.Job == nil || !s.Job.Person || s.Due == 0 {
		return ""
	}
	return ", until " + view.Stamp(s.Due)
}

// waitCommand returns the command that ends what a step waits for, or shows how.
func waitCommand(hint func(command, run string) string, v *view.Run, s *view.Step) string {
	switch {
	case s.Job != nil && s.Job.Person:
		return hint("approvals show", view.OneLine(s.Job.ID))
	case s.Job != nil:
		return hint("jobs show", view.OneLine(s.Job.Provider+"/"+s.Job.ID))
	}
	return hint("runs signal", v.ID+" "+view.OneLine(s.Note))
}

// waitText says what a run waits for, and which command ends the wait.
func (a *app) waitText(v *view.Run, state string) string {
	for _, s := range v.Order {
		if v.ByPath[s.Path] == s && s.WaitsFor() != "" {
			return "for " + view.OneLine(s.WaitsFor()) + upTo(s) + ": `" + waitCommand(a.hint, v, s) + "`"
		}
	}
	return strings.ReplaceAll(state, "_", " ")
}

// importedWord returns the word that marks an imported run.
func importedWord(is bool) string {
	if is {
		return store.ImportedReason
	}
	return ""
}

// importedText explains that a run was imported.
func (a *app) importedText(h store.Head) string {
	return "what it says happened elsewhere, if at all" + strings.TrimPrefix(h.Quarantine, store.ImportedReason) +
		"; `" + a.hint("runs adopt", h.Run) + "` makes it a run of this data directory"
}

func (a *app) printRun(v *view.Run, f fullView, head store.Head) {
	rows := [][]string{
		{"run", f.ID},
		{"recipe", view.OneLine(view.Join(" ", f.Recipe, f.Version))},
		{"status", f.Status},
		{"created", a.exact(head.Created)},
	}
	if f.EndedAt != "" {
		rows = append(rows, []string{"ended", a.exact(head.Ended)})
	}
	if w := f.Waits; w != nil {
		next := "`" + w.Next + "`"
		if w.Limit != "account" && w.Available < w.Missing {
			next = w.Next
		}
		rows = append(rows, []string{"waits", w.text() + ": " + next})
	} else if f.WaitState != "none" {
		rows = append(rows, []string{"waits", a.waitText(v, f.WaitState)})
	} else if text := a.waitsForChild(v); text != "" && !v.Done() {
		rows = append(rows, []string{"waits", text})
	}
	if f.Paused {
		rows = append(rows, []string{"paused", "no attempt begins; `" + a.hint("runs unpause", f.ID) + "` lets it go on"})
	}
	if f.Parent != "" {
		rows = append(rows, []string{"parent", f.Parent}, []string{"root", f.Root})
	}
	if text := v.ChildrenText(); text != "" {
		rows = append(rows, []string{"children", text})
	}
	if f.Generation > 1 {
		rows = append(rows, []string{"generation", fmt.Sprint(f.Generation)})
	}
	rows = append(rows, []string{"used", fundsText(f.Credits.Used, f.Credits.Reserved, f.Credits.Estimated)})
	if f.Imported {
		rows = append(rows, []string{store.ImportedReason, a.importedText(head)})
	} else if f.Quarantine != "" {
		rows = append(rows, []string{"quarantined", view.OneLine(f.Quarantine) + "; `" + a.hint("runs release", f.ID) + "` lets it go on"})
	}
	if f.Error != nil {
		rows = append(rows, []string{"error", view.OneLine(string(f.Error.Code) + ": " + f.Error.Message)})
	}
	if columns, ok := a.stdoutColumns(); ok {
		rows[1][1] = term.Cut(rows[1][1], columns-len("quarantined")-term.ColumnGap)
	}
	a.text("%s\n", a.folded(term.Table(rows), len("quarantined")+term.ColumnGap))
	steps := [][]string{{"STEP", "STATUS", "TRIES", "TOOK", "USED", ""}}
	for _, s := range v.Listed() {
		if s.Others != "" {
			steps = append(steps, []string{s.Path + "  " + s.Others})
			continue
		}
		note := view.Join(", ", s.Undone, s.Opened, s.Note)
		if note == "" && s.Cached != "" && s.Code == "" {
			note = view.Join(", ", s.Cached, s.Summary)
		}
		if s.Job != nil {
			note = view.Join(", ", note, "for "+s.WaitsFor())
		}
		if s.Child != nil {
			note = view.Join(", ", s.Child.Text(), note)
		}
		switch {
		case s.Code != "":
			note = view.Join(", ", note, fmt.Sprintf("%s: %s", s.Code, s.Message))
		case note == "":
			note = s.Summary
		}
		steps = append(steps, []string{
			s.Path, s.Status, fmt.Sprint(s.Attempts), left0(s.Micros), fmt.Sprint(s.Cost), view.OneLine(view.Cut(note, 72)),
		})
	}
	a.table(steps, 5, ^0)
	if f.Truncated {
		a.text("… only the first %d steps are listed\n", view.MaxSteps)
	}
	if len(v.Outputs) > 0 {
		a.text("\noutputs\n")
		a.printOutputs(v.Outputs)
	}
}

// sayImported reports on standard error that a run was imported, for commands whose
// output is a stream that cannot contain the mark.
func (a *app) sayImported(h store.Head) {
	if h.Imported() {
		a.say("run %s was %s: %s", h.Run, store.ImportedReason, a.importedText(h))
	}
}
