// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
)

func TestPayOnce(t *testing.T) {
	till = &cashDesk{paid: map[string]string{}}
	actiontest.Check(t, pay)
	files := actiontest.NewFiles(t)
	call := func(attempt int, key string, cents int) (actiontest.Output, error) {
		return actiontest.Call(t, pay, map[string]any{"cents": cents}, actiontest.WithFiles(files),
			actiontest.WithAttempt(attempt), actiontest.WithEffectKey(key))
	}
	first, err := call(1, "k", 100)
	again, err2 := call(2, "k", 100) // the first answer was lost
	if err != nil || err2 != nil || string(first.JSON) != string(again.JSON) || len(till.paid) != 1 {
		t.Errorf("paid %d times: %s %v, %s %v", len(till.paid), first.JSON, err, again.JSON, err2)
	}
	if text, info := files.Read(first.Object()["receipt"].(string)); string(text) != "Receipt R-1" || info.Name != "receipt.txt" {
		t.Errorf("the receipt says %q, %+v", text, info)
	}
	till.busy = true
	_, err = call(1, "l", 100)
	var f *fault.Error
	if till.busy = false; !errors.As(err, &f) || f.Code != fault.ServiceUnavailable || f.RetryAfterMS != 5_000 {
		t.Errorf("busy: %v", err)
	}
	till.silent = true
	_, err = call(1, "n", 100)
	if till.silent = false; !fault.OutcomeUnknown(err) || till.paid["n"] == "" {
		t.Errorf("no answer: %v", err)
	}
	if _, err = call(1, "m", 2_000_00); !errors.Is(err, fault.Code("CARD_REFUSED")) {
		t.Errorf("too much: %v", err)
	}
}
