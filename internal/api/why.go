// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// maxExplained is how many steps the explanation of a run explains.
	maxExplained = 20
	// maxEntries is how many entries of an account the bill of a run is made of.
	maxEntries = 100_000
)

func (s *Server) whyRoutes() {
	rest.Handle(s.rest, rest.Op("executions-explain", http.MethodGet, "/v1/recipe-executions/{id}/explain", "Explain why a run, or a step of it, has its status"), rest.Needs(access.RunsRead), s.explain)
	rest.Handle(s.rest, rest.Op("executions-ledger", http.MethodGet, "/v1/recipe-executions/{id}/ledger", "Explain what a run reserved, used and paid, and with which lots"), rest.Needs(access.CreditsRead), s.bill)
}

// An ExecutionExplanation is why a run has its status, by the steps that decide it. Each fact
// names the event that proves it.
type ExecutionExplanation struct {
	ExecutionID string             `json:"executionId"`
	Status      string             `json:"status" enum:"pending,running,completed,failed,cancelled"`
	State       string             `json:"state"`
	Paused      bool               `json:"paused"`
	Quarantined string             `json:"quarantined,omitempty" doc:"Why it is quarantined."`
	ErrorCode   string             `json:"errorCode,omitempty"`
	Error       string             `json:"error,omitempty"`
	Remedy      string             `json:"remedy,omitempty" doc:"What the code of the error asks for."`
	Steps       []*StepExplanation `json:"steps" doc:"The step that was asked for. Without one: the first that failed, or those that are open."`
	MoreSteps   int                `json:"moreSteps,omitempty" doc:"Open steps that are not explained; ask for one by its path."`
}

// A StepExplanation is why a step has its status.
type StepExplanation struct {
	Step      string            `json:"step" doc:"Its path."`
	Status    string            `json:"status"`
	Why       []string          `json:"why"`
	DependsOn []view.Dependency `json:"dependsOn,omitempty"`
	Facts     []view.Fact       `json:"facts"`
	Waiting   *view.Waiting     `json:"waiting,omitempty" doc:"Where it stands at this moment, if it waits for a limit of attempts."`
	ChildRun  string            `json:"childRunId,omitempty" doc:"The run of a nested recipe, which has an explanation of its own."`
}

type explainIn struct {
	RunPath
	Step string `query:"step" maxLength:"1000" doc:"Path of a step, such as pages[3].resize. Default: what decides the status of the run."`
}

func (s *Server) explain(ctx context.Context, in *explainIn) (*struct{ Body ExecutionExplanation }, error) {
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	p, mask, err := s.cfg.Node.Engine.MaskOf(ctx, head.Account, head.Run)
	if err != nil {
		return nil, err
	}
	v := view.NewRun(p, head.Run)
	if err := s.eachMasked(ctx, head.Run, 0, mask, v.Apply); err != nil {
		return nil, err
	}
	facts, err := s.facts(ctx, &head)
	if err != nil {
		return nil, err
	}
	out := ExecutionExplanation{ExecutionID: head.Run, Status: resource.ExecutionStatus(v.Status), State: v.Status.String(), Paused: v.Paused, Quarantined: facts.Quarantine, Steps: []*StepExplanation{}}
	if v.Error != nil {
		out.ErrorCode, out.Error = v.Error.Code, v.Error.Message
		if row, ok := fault.Lookup(fault.Code(v.Error.Code)); ok {
			out.Remedy = row.Remedy
		}
	}
	refs, err := v.Subjects(in.Step)
	if err != nil {
		return nil, err
	}
	if len(refs) > maxExplained {
		out.MoreSteps, refs = len(refs)-maxExplained, refs[:maxExplained]
	}
	out.Steps, err = s.explainSteps(ctx, v, mask, refs)
	return &struct{ Body ExecutionExplanation }{out}, err
}

// explainSteps explains steps, in one pass over the events of their run.
func (s *Server) explainSteps(ctx context.Context, v *view.Run, mask *view.Mask, refs []journal.Ref) ([]*StepExplanation, error) {
	explainers := make([]*view.Explainer, len(refs))
	for i, ref := range refs {
		explainers[i] = view.NewExplainer(v.Plan, v.ID, ref)
	}
	err := s.eachMasked(ctx, v.ID, 0, mask, func(ev *journal.Event) error {
		for _, x := range explainers {
			if err := x.Apply(ev); err != nil {
				return err
			}
		}
		return nil
	})
	at, _ := s.cfg.Node.Engine.Waiting(ctx, rest.Account(ctx), v.ID, refs) // without it nothing is wrong
	list := make([]*StepExplanation, len(refs))
	for i, x := range explainers {
		e := x.Explain()
		list[i] = &StepExplanation{Step: e.Step, Status: e.Status, Why: e.Why, DependsOn: e.DependsOn, Facts: e.Facts}
		if list[i].Waiting = at[refs[i]]; list[i].Waiting != nil {
			list[i].Why = append(list[i].Why, list[i].Waiting.Lines()...)
		}
		if step := v.ByPath[e.Step]; step != nil && step.Child != nil {
			list[i].ChildRun = step.Child.Run
		}
	}
	return list, err
}

func (s *Server) bill(ctx context.Context, in *RunPath) (*struct{ Body *view.Bill }, error) {
	head, err := s.cfg.Node.Engine.Head(ctx, rest.Account(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	b, err := s.billOf(ctx, &head)
	return &struct{ Body *view.Bill }{b}, err
}

// billOf returns what a run has cost its account.
func (s *Server) billOf(ctx context.Context, head *store.Head) (*view.Bill, error) {
	p, mask, err := s.cfg.Node.Engine.MaskOf(ctx, head.Account, head.Run)
	if err != nil {
		return nil, err
	}
	x := view.NewBiller(p, head.Run)
	if err := s.eachMasked(ctx, head.Run, 0, mask, x.Apply); err != nil {
		return nil, err
	}
	b := x.Bill()
	b.Imported = head.Imported()
	if mask == nil {
		b.Expanded = program.Expanded(p, s.cfg.Actions.Catalogue, x.Start())
	}
	if b.Metered && !b.Imported && b.Root == "" { // else the entries are elsewhere, if at all
		err = s.entriesOf(ctx, head, b, x.Entry)
	}
	return b, err
}

// entriesOf calls fn for the entries of a run's account since the run began, and adds the
// budgets of the run.
func (s *Server) entriesOf(ctx context.Context, head *store.Head, b *view.Bill, fn func(*ledger.Entry)) error {
	budgets := s.cfg.Rules(head.Account).Budgets
	if budgets.Day.Limit != 0 || b.Key != "" {
		now := s.cfg.Now().UnixMicro()
		account, err := s.cfg.Node.Store.Account(ctx, head.Account, now)
		if err != nil {
			return err
		}
		b.Budgets = budgets.Standings(account, b.Key, max(now, account.At()))
	}
	all, err := purse.EachEntry(ctx, s.cfg.Node.Store, head.Account, head.Created, maxEntries, fn)
	b.Unread = !all
	return err
}
