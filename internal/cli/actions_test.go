// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// testActions are what the transcripts and the kill tests call besides the
// actions of the release.
func testActions() []action.Action {
	yes := true
	parallel := action.Metadata{Parallelizable: &yes}
	return []action.Action{
		{Name: "effect", Version: "1.0.0", Description: "Records that it ran.", Cost: 2, Metadata: parallel, Run: effect},
		{Name: "flaky", Version: "1.0.0", Description: "Fails at the first try.", Metadata: parallel, Run: flaky},
		{Name: "broken", Version: "1.0.0", Description: "Always fails.", Metadata: parallel, Run: broken},
		{Name: "stubborn", Version: "1.0.0", Description: "Does not listen when told to stop.", Run: stubborn},
		{Name: "large", Version: "1.0.0", Description: "Returns much that does not compress.", Metadata: parallel, Run: large},
		{Name: "chatty", Version: "1.0.0", Description: "Says what it does.", Metadata: parallel, Run: chatty},
		{Name: "copy-file", Version: "1.0.0", Description: "Makes a file of another and one letter.", Metadata: parallel, Run: copyFile,
			Input: []byte(`{"type":"object","required":["file"],"properties":{"file":{"type":"string","format":"file"}}}`)},
		{Name: "priced", Version: "1.0.0", Description: "Costs a part of a credit, and fails once.", Price: "0.4", Metadata: parallel, Run: priced},
		{Name: "leak", Version: "1.0.0", Description: "Returns and reports what it is given.", Metadata: parallel, Run: leak},
		{Name: "terminal", Version: "1.0.0", Description: "Returns control characters.", Run: controlCode},
	}
}

// priced fails at its first attempt, which cost something, too.
func priced(_ context.Context, t *action.Task) (action.Result, error) {
	if t.Attempt == 1 {
		return action.Result{Price: "0.25"}, fault.New(fault.ServiceUnavailable, "busy")
	}
	return action.Result{Output: map[string]any{}, Price: "0.3"}, nil
}

// An effectLine is one line of the file that effects leave, synced before the
// action answers.
type effectLine struct {
	Step    string `json:"step"`
	Key     string `json:"key"`
	Attempt int    `json:"attempt"`
}

func effect(ctx context.Context, t *action.Task) (action.Result, error) {
	var in struct {
		MS int64 `json:"ms"`
		N  any   `json:"n"`
	}
	if err := t.Decode(&in); err != nil {
		return action.Result{}, err
	}
	if path := os.Getenv("EFFECTS"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return action.Result{}, err
		}
		line, err := json.Marshal(effectLine{t.Step, t.EffectKey, t.Attempt})
		if err != nil {
			return action.Result{}, err
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			return action.Result{}, err
		}
		if err := f.Close(); err != nil {
			return action.Result{}, err
		}
	}
	select {
	case <-time.After(time.Duration(in.MS) * time.Millisecond):
	case <-ctx.Done():
		return action.Result{}, ctx.Err()
	}
	return action.Result{Output: map[string]any{"n": in.N}}, nil
}

func flaky(_ context.Context, t *action.Task) (action.Result, error) {
	if t.Attempt == 1 {
		return action.Result{}, fault.New(fault.ServiceUnavailable, "the service is away")
	}
	return action.Result{Output: map[string]any{"tries": t.Attempt}}, nil
}

func broken(context.Context, *action.Task) (action.Result, error) {
	return action.Result{}, fault.New(fault.StepFailed, "it is broken")
}

func stubborn(_ context.Context, t *action.Task) (action.Result, error) {
	t.Report.Log("info", "not listening")
	time.Sleep(time.Minute)
	return action.Result{}, fmt.Errorf("nobody waited")
}

func copyFile(ctx context.Context, t *action.Task) (action.Result, error) {
	var in struct{ File, Name string }
	if err := t.Decode(&in); err != nil {
		return action.Result{}, err
	}
	f, err := t.Files.Open(ctx, in.File)
	if err != nil {
		return action.Result{}, err
	}
	defer f.Close()
	info, err := t.Files.Put(ctx, io.MultiReader(strings.NewReader("x"), f), in.Name, "")
	return action.Result{Output: map[string]any{"file": info.Hash, "name": info.Name}}, err
}

func controlCode(context.Context, *action.Task) (action.Result, error) {
	return action.Result{Output: map[string]any{"text": "red \x1b[31mtitle \x1b]0;owned\x07 \u202eback"}}, nil
}

func large(_ context.Context, t *action.Task) (action.Result, error) {
	in := struct{ Bytes int }{900_000}
	if err := t.Decode(&in); err != nil {
		return action.Result{}, err
	}
	var b strings.Builder
	for sum := sha256.Sum256([]byte(t.Step)); b.Len() < in.Bytes; sum = sha256.Sum256(sum[:]) {
		b.WriteString(base64.StdEncoding.EncodeToString(sum[:]))
	}
	return action.Result{Output: map[string]any{"text": b.String()}}, nil
}

// chatty logs, streams, and fails at its first try when asked to.
func chatty(_ context.Context, t *action.Task) (action.Result, error) {
	t.Report.Log("debug", "looking around")
	t.Report.Log("info", "begins \x1b[31m"+t.Step)
	t.Report.Delta("once upon ")
	t.Report.Delta("a time")
	if t.Attempt == 1 {
		return action.Result{}, fault.New(fault.ServiceUnavailable, "not at the first try")
	}
	t.Report.Log("warn", "done at last")
	return action.Result{Output: map[string]any{"told": "secret-of-the-output"}}, nil
}
