// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"github.com/roux-engine/roux/internal/picture"
	"github.com/roux-engine/roux/internal/view"
)

// drawAll draws nothing: this edition has no command that does.
func drawAll(*picture.Picture) {}

// compareAll compares nothing, either.
func compareAll(*app, *view.Side, *view.Side) {}
