// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// Price returns the price that an action declares, 0 for one without. A price that cannot
// be read, or beside a cost, is fault.PriceUnknown: it does not count as 0.
func Price(a *action.Action) (ledger.Amount, error) {
	switch {
	case a.Price == "":
		return 0, nil
	case a.Cost != 0:
		return 0, fault.New(fault.PriceUnknown, "action %s@%s declares a cost of %d and a price of %s: only one of them can hold", a.Name, a.Version, a.Cost, a.Price)
	}
	price, err := ledger.ParseAmount(a.Price)
	if err != nil {
		return 0, fault.Wrap(fault.PriceUnknown, err, "the price of action %s@%s: %s", a.Name, a.Version, fault.Message(err))
	}
	return price, nil
}
