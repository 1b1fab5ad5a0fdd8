// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
)

func TestShorten(t *testing.T) {
	actiontest.Check(t, shorten)
	out, err := actiontest.Call(t, shorten, map[string]any{"text": "Lindholm", "most": 4})
	if err != nil || out.Object()["text"] != "Lind" || out.Object()["cut"] != true {
		t.Errorf("%s, %v", out.JSON, err)
	}
	_, err = actiontest.Call(t, shorten, map[string]any{"text": "Lindholm", "most": 0})
	if !errors.Is(err, fault.InputInvalid) {
		t.Errorf("most 0: %v", err)
	}
}
