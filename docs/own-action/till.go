// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A cashDesk stands for a service that honours idempotency keys.
type cashDesk struct {
	mu     sync.Mutex
	busy   bool
	silent bool              // it pays, and its answer is lost
	paid   map[string]string // receipt numbers by key
}

var (
	till      = &cashDesk{paid: map[string]string{}}
	errBusy   = errors.New("busy")
	errSilent = errors.New("no answer")
)

// Charge charges once per key and returns the number of the receipt.
func (d *cashDesk) Charge(ctx context.Context, key string, cents int64) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case d.busy:
		return "", errBusy
	case cents > 1_000_00:
		return "", errors.New("more than the limit")
	case d.paid[key] == "":
		d.paid[key] = fmt.Sprintf("R-%d", len(d.paid)+1)
	}
	if d.silent {
		return "", errSilent
	}
	return d.paid[key], nil
}
