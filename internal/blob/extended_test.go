// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"encoding/json"
	"errors"
	"testing"
)

// TestExtendedOfNothing: a failed inspection may return null; only its problem is
// recorded.
func TestExtendedOfNothing(t *testing.T) {
	if got := string(extended(json.RawMessage("null"), errors.New("damaged"))); got != `{"problem":{"code":"INTERNAL_ERROR","message":"damaged"}}` {
		t.Errorf("null and a problem: %s", got)
	}
	if got := extended(json.RawMessage("null"), nil); got != nil {
		t.Errorf("null alone: %s", got)
	}
}
