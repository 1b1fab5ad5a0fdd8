// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

var pay = action.Action{
	Name: "pay", Version: "1.0.0", Description: "Pays an invoice and files the receipt.", Cost: 2, Provider: "till",
	Faults: []fault.Code{fault.ServiceUnavailable, "CARD_REFUSED"},
	Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
		var in struct{ Cents int64 }
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		if task.Report != nil {
			task.Report.Progress(0.1, "asking the till")
		}
		// The key stays the same until an answer is recorded, so a till that honours keys pays once.
		number, err := till.Charge(ctx, task.EffectKey, in.Cents)
		switch {
		case errors.Is(err, errBusy): // another attempt can help, after five seconds at the earliest
			return action.Result{}, &fault.Error{Code: fault.ServiceUnavailable, Msg: "the till is busy", RetryAfterMS: 5_000}
		case errors.Is(err, errSilent): // it may have paid: the next attempt has the same key
			return action.Result{}, fault.Unsure(fault.New(fault.ServiceUnavailable, "the till did not answer"))
		case err != nil: // a code of your own, which recipes can list
			return action.Result{}, fault.New("CARD_REFUSED", "the till refused the card: %v", err)
		}
		receipt, err := task.Files.Put(ctx, strings.NewReader("Receipt "+number), "receipt.txt", "text/plain")
		if err != nil { // it has paid
			return action.Result{}, fault.Unsure(err)
		}
		return action.Result{Output: map[string]any{"number": number, "receipt": receipt.Hash}}, nil
	},
}
