// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// Action is the action hold of remote workers. It calls a meter at an address, and waits for the answer.
func Action(do func(*http.Request) (*http.Response, error)) action.Action {
	return action.Action{Name: "hold", Run: func(ctx context.Context, t *action.Task) (action.Result, error) {
		var in struct{ URL string }
		if err := json.Unmarshal(t.Input, &in); err != nil {
			return action.Result{}, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.URL, http.NoBody)
		if err != nil {
			return action.Result{}, err
		}
		res, err := do(req)
		if err != nil {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "the meter does not answer")
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return action.Result{Output: map[string]any{"status": res.StatusCode}}, err
	}}
}
