// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

const (
	// httpPrice is what a call of action http costs in a round that pays, in millionths.
	httpPrice = 300_000
	// maxLive is how many live runs the account of such a round may have.
	maxLive = 2
	// granted is how many credits each grant has.
	granted = 10_000
)

// pay makes the commands of a round work for an account that pays, and grants it credits.
func (r *round) pay() error {
	r.pays = true
	r.c.env = append(r.c.env, "ROUX_ACCOUNT=acme", fmt.Sprintf(`ROUX_ACCOUNTS={"acme":{"max_live_runs":%d}}`, maxLive),
		fmt.Sprintf(`ROUX_PRICES={"http":"%g"}`, httpPrice/1e6))
	out, talk, code, err := r.c.output("credits", "grant", fmt.Sprint(granted), "--key", "first")
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: the first grant: exit code %d\n%s%s", r.name, code, out, talk)
	}
	if err != nil {
		return err
	}
	return r.c.noteGrant("first")
}

// grantAgain grants credits under a key that may have been used before. The command may
// fail, because the process that holds the directory is being killed.
func (r *round) grantAgain(key string) error {
	if !r.pays {
		return nil
	}
	_, _, code, err := r.c.output("credits", "grant", fmt.Sprint(granted), "--key", key)
	if err != nil || code != 0 {
		return err
	}
	return r.c.noteGrant(key)
}

// noteGrant records a grant that a command acknowledged.
func (c *client) noteGrant(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants[key] = true
	return c.note(fmt.Sprintf(`{"granted":%q}`, key), true)
}

// checkCharges checks that each completed step with an effect was charged once, and adds
// up what the run was charged, in millionths. Whole credits are in the event that
// completes the step; compensations are recorded and not charged.
func (r *round) checkCharges(h *history, bad func(string, ...any)) (used int64) {
	charged := map[string]int{}
	for _, l := range h.events {
		step, p := l.Payload.Step, &l.Payload
		if strings.Contains(step, ".compensation.") {
			continue
		}
		if l.Type == "node.completed" {
			used += p.CreditsUsed * 1e6
		}
		switch {
		case l.Type == "node.charged" && p.Charged:
			charged[step]++
			used += int64(math.Round(p.Amount * 1e6))
		case l.Type == "node.completed" && p.Kind == "action" && r.pays && charged[step] != 1 && hasEffect(h.recipe, step):
			bad("step %s of run %s is completed and was charged %d times (I12)", step, h.id, charged[step])
		}
	}
	return used
}

// checkCredits compares the ledger with the journals and with what the client was shown.
// used is what the runs of each tree were charged, by root.
func (r *round) checkCredits(used map[string]int64, bad func(string, ...any)) error {
	if !r.pays {
		return nil
	}
	var balance struct{ Granted, Available, Held, Spent int64 }
	ledger, err := r.storedEntries()
	if err != nil {
		return err
	}
	if err := r.ask(&balance, "credits", "balance"); err != nil {
		return err
	}
	keys, paid, spent, grants := map[string]bool{}, map[string]int64{}, int64(0), int64(0)
	for _, e := range ledger {
		if keys[e.Key] {
			bad("the ledger has two entries under key %s (I11)", e.Key)
		}
		keys[e.Key] = true
		switch e.Kind {
		case "settle":
			paid[e.Run] += e.Amount
			spent += e.Amount
		case "grant":
			grants += e.Amount
		}
	}
	for key := range r.c.grants {
		if !keys["grant/"+key] {
			bad("grant %s was shown and is missing now (I1)", key)
		}
	}
	for run, n := range used {
		if want := int64(math.Ceil(float64(n) / 1e6)); paid[run] != want {
			bad("run %s was charged %g credits in its tree, and has settled %d (I11)", run, float64(n)/1e6, paid[run])
		}
		delete(paid, run)
	}
	for run, n := range paid {
		bad("%d credits were settled for %s, which is no root (I11)", n, run)
	}
	if balance.Held != 0 || balance.Spent != spent || balance.Granted != grants || balance.Granted != balance.Available+balance.Spent {
		bad("every run has ended, and the balance is %+v; the ledger has %d granted and %d spent (I11)", balance, grants, spent)
	}
	r.paid.Add(spent)
	return nil
}

// ask runs a command and decodes the JSON that it prints.
func (r *round) ask(to any, args ...string) error {
	out, talk, code, err := r.c.output(append(args, "-o", "json")...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: %s: exit code %d\n%s", r.name, strings.Join(args, " "), code, talk)
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), to)
	}
	return err
}

// checkChildren checks that a run ended each child run that it began, once, and with the
// status that this one has by its own journal (X62, F44).
func (r *round) checkChildren(h *history, byID map[string]*history, bad func(string, ...any)) {
	open, ended := map[string]string{}, map[string]int{} // child run by step, and how often it has ended
	for _, l := range h.events {
		switch step := l.Payload.Step; l.Type {
		case "run.child_started":
			if open[step] != "" {
				bad("step %s of run %s began a child run while %s was open (X62)", step, h.id, open[step])
			}
			open[step] = l.Payload.Child
		case "run.child_ended":
			child := byID[open[step]]
			nth := ended[open[step]]
			ended[open[step]]++
			if child == nil || nth >= len(child.ends) || child.ends[nth] != l.Payload.ChildStatus {
				bad("step %s of run %s saw child run %q end %s, and its journal differs (X62)", step, h.id, open[step], l.Payload.ChildStatus)
			}
			delete(open, step)
		}
	}
	for step, child := range open {
		bad("run %s has ended, and child run %s of step %s has not (F44)", h.id, child, step)
	}
}
