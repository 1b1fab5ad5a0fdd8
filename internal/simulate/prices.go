// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
)

// changesPrices reports whether the prices of a world that pays change. Like maxTurn it
// depends on the seed alone.
func changesPrices(seed uint64) bool { return seed%4 == 3 }

// A priceList is the actions of a world, at the prices of the moment. Those of a run are
// pinned when it, or the root of its tree, is started (I12).
type priceList struct{ w *World }

// Find implements engine.Actions.
func (l priceList) Find(name, version string) *action.Action {
	c := l.w.c
	if n := l.w.prices; n > 0 {
		return c.Prices[n-1].Find(name, version)
	}
	return c.Actions.Find(name, version)
}

// changePrices draws other prices.
func (w *World) changePrices() {
	if n := len(w.c.Prices); n > 0 && changesPrices(w.seed) && w.bank.dice.IntN(12) == 0 {
		w.prices = w.bank.dice.IntN(n + 1)
		w.tracef("prices %d", w.prices)
	}
}

// drawnPrices are those to which the prices of drawn recipes change: the one list is
// dearer, the other cheaper, and each has an action that costs nothing.
var drawnPrices = []engine.Actions{
	drawnAt(map[string]string{"work": "5", "undo": "0.25", "slotted": "1.1", "provided": "", "alone": "0.75"}),
	drawnAt(map[string]string{"work": "0.5", "undo": "", "slotted": "0.000002", "provided": "0.3"}),
}

// drawnAt returns the drawn actions at these prices.
func drawnAt(prices map[string]string) engine.Actions {
	var list []*action.Action
	for _, name := range drawnActions.Names() {
		a := *drawnActions.Find(name, "")
		if price, ok := prices[name]; ok {
			a.Cost, a.Price = 0, price
		}
		list = append(list, &a)
	}
	return compile.NewCatalogue(list...)
}
