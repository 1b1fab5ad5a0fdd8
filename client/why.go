// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// An Explanation is why a run has its status, by the steps that decide it.
type Explanation struct {
	ExecutionID string `json:"executionId"`
	Status      string `json:"status"`
	State       string `json:"state"`
	Paused      bool   `json:"paused"`
	Quarantined string `json:"quarantined,omitempty"` // why it is
	ErrorCode   string `json:"errorCode,omitempty"`
	Error       string `json:"error,omitempty"`
	Remedy      string `json:"remedy,omitempty"`
	// Steps are the step that was asked for; without one the first that failed, or those that
	// are open.
	Steps     []*StepExplanation `json:"steps"`
	MoreSteps int                `json:"moreSteps,omitempty"` // open steps that are not explained
}

// A StepExplanation is why a step has its status.
type StepExplanation struct {
	Step      string       `json:"step"` // its path
	Status    string       `json:"status"`
	Why       []string     `json:"why"`
	DependsOn []Dependency `json:"dependsOn,omitempty"`
	Facts     []Fact       `json:"facts"`
	Waiting   *Waiting     `json:"waiting,omitempty"`    // nil = it waits for no limit of attempts
	ChildRun  string       `json:"childRunId,omitempty"` // has an explanation of its own
}

// A Waiting is where a step that wants an attempt stood when it was asked about.
type Waiting struct {
	Reason   string       `json:"reason"`
	Ahead    int          `json:"ahead"`             // steps of the account before it
	Accounts int          `json:"accounts"`          // that take turns
	Until    string       `json:"until,omitempty"`   // when it may go on at the earliest; "" = not known
	Slots    int          `json:"slots,omitempty"`   // of the limit; 0 = it waits for time
	Used     int          `json:"used,omitempty"`    // of them
	Holders  []WaitedStep `json:"holders,omitempty"` // of its account, of limits with few slots
	Behind   *WaitedStep  `json:"behind,omitempty"`  // the step that waits before it
}

// A WaitedStep is a step that another one waits for. Step is "" if its run is not in memory.
type WaitedStep struct {
	Run  string `json:"executionId"`
	Step string `json:"step,omitempty"`
}

// A Dependency is a step that must settle first.
type Dependency struct {
	Step   string `json:"step"`
	Status string `json:"status"`
}

// A Fact is an event about a step.
type Fact struct {
	Event uint64 `json:"event"`
	At    string `json:"at"`
	Type  string `json:"type"`
	Text  string `json:"text,omitempty"`
}

// Explain explains why a run has its status, or why one of its steps has. step is the path of a
// step; "" = those that decide the status of the run.
func (r *Runs) Explain(ctx context.Context, id, step string) (*Explanation, error) {
	out := new(Explanation)
	_, err := r.c.do(ctx, r.at(http.MethodGet, id, "explain").with("step", step), out)
	return result(out, err)
}

// A Bill is what a run has cost its account, and why. Amounts with up to six decimals are
// numbers as the server wrote them; all others are whole credits.
type Bill struct {
	Run             string       `json:"run"`
	Account         string       `json:"account"`
	Status          string       `json:"status"`
	Imported        bool         `json:"imported,omitempty"`  // nothing here has paid for it
	RootRunID       string       `json:"rootRunId,omitempty"` // the run that pays for this one
	Metered         bool         `json:"metered"`             // false = the run costs nothing
	Strategy        string       `json:"strategy,omitempty"`  // of the recipe's creditEstimation
	Formula         string       `json:"formula,omitempty"`
	Expanded        string       `json:"expanded,omitempty"` // the formula with values for names
	Estimated       int64        `json:"estimated"`
	CreditsReserved int64        `json:"creditsReserved"` // when the run started
	ShareExtensions []Extension  `json:"shareExtensions,omitempty"`
	MaxCredits      int64        `json:"maxCredits"`
	Policy          string       `json:"policy,omitempty"` // for a run that fails
	Key             string       `json:"key,omitempty"`    // whose budget it spends
	Budgets         []BudgetUse  `json:"budgets,omitempty"`
	Used            json.Number  `json:"used"`      // the sum of what is charged
	Uncharged       json.Number  `json:"uncharged"` // what is recorded and not charged
	Paid            int64        `json:"paid"`
	Held            int64        `json:"held"`
	Adjustments     []Adjustment `json:"adjustments,omitempty"` // what was given back of Paid
	// Generations are the first run and its retries.
	Generations []*GenerationBill `json:"generations"`
	Charges     []Charge          `json:"charges"`
	Truncated   bool              `json:"truncated,omitempty"` // there are more charges
	// EntriesUnread is set if the account has more entries than were read since the run began:
	// lots and adjustments may be missing.
	EntriesUnread bool `json:"entriesUnread,omitempty"`
}

// A BudgetUse is how much of a budget is used now, by all runs.
type BudgetUse struct {
	LimitSource string `json:"limitSource"`
	Limit       int64  `json:"limit"`
	Used        int64  `json:"used"`
	Reset       string `json:"reset"`
	Audit       bool   `json:"audit"` // it reports and refuses nothing
}

// An Extension is what was added to a reservation.
type Extension struct {
	Event   uint64 `json:"event"`
	At      string `json:"at"`
	Credits int64  `json:"credits"`
}

// An Adjustment is what was given back.
type Adjustment struct {
	At     string      `json:"at"`
	Amount int64       `json:"amount"`
	Lots   []LotAmount `json:"lots"`
	Note   string      `json:"note,omitempty"`
}

// A GenerationBill is what one generation of a run reserved and paid.
type GenerationBill struct {
	Generation int64       `json:"generation"`
	Expected   int64       `json:"expected"`
	Reserved   int64       `json:"reserved"`
	Extensions []Extension `json:"extensions,omitempty"`
	Held       int64       `json:"held"`
	Used       json.Number `json:"used"`
	Status     string      `json:"status,omitempty"`
	Due        int64       `json:"due"`        // what the run owes in all its generations
	PaidBefore int64       `json:"paidBefore"` // by earlier generations
	Paid       int64       `json:"paid"`
	Released   int64       `json:"released"`
	Why        string      `json:"why,omitempty"`  // the arithmetic of Due and Paid
	Lots       []LotAmount `json:"lots,omitempty"` // that it paid with
	Took       []LotAmount `json:"took,omitempty"` // that it held credits of
}

// A Charge is what one attempt cost.
type Charge struct {
	Event   uint64      `json:"event"`
	Step    string      `json:"step"`
	Attempt uint32      `json:"attempt"`
	Amount  json.Number `json:"amount"`
	Charged bool        `json:"charged"`
	Why     string      `json:"why,omitempty"` // why it is not charged
	Run     string      `json:"run,omitempty"` // the child run that the attempt was
}

// Ledger explains what a run reserved, used and paid, and with which lots.
func (r *Runs) Ledger(ctx context.Context, id string) (*Bill, error) {
	out := new(Bill)
	_, err := r.c.do(ctx, r.at(http.MethodGet, id, "ledger"), out)
	return result(out, err)
}
