// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// X156: a layer in front of the API can take payments, as x402 does: a start that the balance does not cover is answered
// with 402 and says what is missing, and starts nothing. The payment is a grant under its id, so that one that is sent
// twice counts once, and the same request then starts the run. Each movement is an entry of the ledger.
func TestX156_PaymentInFrontOfTheAPI(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, paidWaits)
	s.grant("acme", 4)
	ask := func() answer {
		return s.call(dev, "POST", "/v1/recipes/paid-waits/execute", `{}`, "Idempotency-Key", "order-17")
	}
	refused := ask().problem(fault.InsufficientCredits)
	missing, ok := refused.get("missing").(float64)
	if refused.status != 402 || !ok || missing != 6 {
		t.Fatalf("%d %s", refused.status, refused.body)
	}
	if list := s.call(dev, "GET", "/v1/recipe-executions", nil).want(200).get("data").([]any); len(list) != 0 {
		t.Errorf("%d runs before the payment", len(list))
	}
	payment := map[string]any{"key": "payment-0xabc", "amount": int(missing)}
	first := s.call(s.admin, "POST", "/v1/accounts/acme/grants", payment)
	again := s.call(s.admin, "POST", "/v1/accounts/acme/grants", payment)
	if first.status != 201 || again.status/100 != 2 {
		t.Errorf("the payment: %d %s, and again: %d %s", first.status, first.body, again.status, again.body)
	}
	run := ask().want(202).text("executionId")
	if got := ask().want(202).text("executionId"); got != run {
		t.Errorf("the request starts %s and %s", run, got)
	}
	if got := s.call(dev, "GET", "/v1/credits", nil).want(200); got.get("credits.available") != 0.0 || got.get("credits.held") != 10.0 {
		t.Errorf("%s", got.body)
	}
	var moves []string
	for _, e := range s.call(dev, "GET", "/v1/credits/entries", nil).want(200).get("data").([]any) {
		entry := e.(map[string]any)
		moves = append(moves, fmt.Sprint(entry["kind"], " ", entry["amount"]))
	}
	if got := fmt.Sprint(moves); got != "[grant 4 grant 6 reserve 10]" {
		t.Errorf("the ledger has %s", got)
	}
}
