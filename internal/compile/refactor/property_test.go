// SPDX-License-Identifier: Apache-2.0

package refactor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	roux "github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/refactor"
	"github.com/roux-engine/roux/internal/compile/sample"
	"github.com/roux-engine/roux/internal/yamlx"
)

// pure are actions whose outcome depends on their input alone: some inputs fail.
func pure() []action.Action {
	work := func(_ context.Context, t *action.Task) (action.Result, error) {
		h := fnv.New32a()
		input := quoting.ReplaceAll(t.Input, []byte("$1"))
		if bytes.Contains(input, []byte("TEMPLATE_ERROR")) {
			input = nil // a message may be in a text within it
		}
		h.Write(input)
		if h.Sum32()%7 == 0 {
			return action.Result{}, fault.New(fault.StepFailed, "on purpose")
		}
		return action.Result{Output: map[string]any{"hash": h.Sum32() % 1000, "bytes": len(input)}}, nil
	}
	anything := json.RawMessage(`{"type":"object"}`)
	return []action.Action{
		{Name: "work", Version: "1.0.0", Input: anything, Run: work},
		{Name: "once", Version: "1.0.0", Input: anything, Delivery: action.AtMostOnce, Run: work},
	}
}

// drawn draws a recipe whose runs take no time and depend on no race.
func drawn(seed uint64, name string) []byte {
	dice := rand.New(rand.NewPCG(seed, 7))
	r := sample.Recipe(dice, sample.Shape{Written: true, Steps: 3 + int(seed%14), Depth: int(seed % 3), Actions: []string{"work", "work", "once"}, Recipes: int(seed % 3 * 8), Rebind: int(seed % 2 * 20)})
	r.Limits = nil
	if seed%4 != 0 {
		r.ResultRule = ""
	}
	if seed%3 != 0 {
		r.InputSchema = json.RawMessage(`{"type":"object","required":["zero","list"],"properties":{"zero":{},"list":{},"gone":{},"file":{},"when":{}}}`)
	}
	r.Each(func(s *recipe.Step) {
		s.Moderation, s.Cache = nil, nil
		if seed%2 == 0 {
			s.OnParentFailure = ""
			if s.Loop != nil {
				s.Loop.FailureStrategy = ""
			}
			if s.Parallel != nil {
				s.Parallel.FailureStrategy = ""
			}
		}
		if seed%4 < 2 {
			s.When, s.ContinueOnError = "", false
		}
		if s.RetryPolicy != nil {
			s.RetryPolicy.InitialDelay, s.RetryPolicy.MaxDelay, s.RetryPolicy.BackoffMultiplier = "1ms", "1ms", 0
		}
		if s.OnError != nil && s.OnError.RetryDelay != "" {
			s.OnError.RetryDelay = "1ms"
		}
		if s.Wait != nil {
			s.Wait = &recipe.Wait{Duration: "1ms"}
		}
		if s.Parallel != nil {
			s.Parallel.WaitFor = "all" // others race
		}
	})
	d := dialect.Named(name)
	tree, err := d.Encode(r, dialect.Named("recipe"))
	if err != nil {
		panic(err)
	}
	return yamlx.Encode(tree)
}

// asWritten gives some pipelines what people write in them: names with dashes, and fields of results.
func asWritten(seed uint64, text []byte) []byte {
	if seed%5 < 2 {
		text = ids.ReplaceAll(text, []byte("s-$1"))
	}
	if seed%5 == 0 || seed%5 == 3 {
		text = outputs.ReplaceAll(text, []byte("(has($1.hash) ? $1.hash : $1.result)"))
	}
	return text
}

var ids, outputs = regexp.MustCompile(`\bs(\d+)\b`), regexp.MustCompile(`(steps\.[\w-]+)\.output\b`)

// quoting are the messages of errors, which quote expressions in which names may have changed.
var quoting = regexp.MustCompile(`("message":)"(\\.|[^"\\])*"`)

// An ended is how a run ended.
type ended struct{ status, outputs, failure string }

// opened returns an engine with the actions of pure, and a file with a list.
func opened(t *testing.T) (*roux.Engine, action.FileInfo) {
	t.Helper()
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: pure()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	file, err := e.Put(t.Context(), strings.NewReader(`[3,4]`), "list.json", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	return e, file
}

func play(t *testing.T, e *roux.Engine, text []byte, file action.FileInfo) ended {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, err := e.Start(ctx, roux.Request{Recipe: text, Source: "main.yaml", Input: map[string]any{
		"zero": 0, "list": []any{1, "two"}, "file": file.Hash, "when": "2020-01-01T00:00:00Z",
	}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	res, err := e.Wait(ctx, run)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	out := ended{status: fmt.Sprint(res.Status), outputs: quoting.ReplaceAllString(string(res.Outputs), "$1")}
	if out.status != "completed" {
		out.outputs = "" // of a run that has failed there is no result
		out.failure = fmt.Sprint(res.Err)
	}
	return out
}

// ranges lists what can be asked for: the ids of steps that are in one list.
func ranges(t *testing.T, text []byte, dice *rand.Rand) (first, last string) {
	r, _, diags := dialect.Parse("main.yaml", text, form.Options{})
	if r == nil {
		t.Fatal(diags)
	}
	var all [][]*recipe.Step
	all = append(all, r.Steps)
	r.Each(func(s *recipe.Step) {
		all = append(all, s.Scopes()...)
		if s.Loop != nil {
			all = append(all, s.Loop.Steps)
		}
	})
	list := all[0]
	if k := dice.IntN(len(all)); dice.IntN(3) > 0 && len(all[k]) > 0 {
		list = all[k]
	}
	i := dice.IntN(len(list))
	j := i + dice.IntN(len(list)-i)
	if dice.IntN(3) == 0 {
		j = len(list) - 1
	}
	return list[i].ID, list[j].ID
}

// TestX210_RefactorChangesNoResult: runs of a recipe and of what refactor makes of it end in the same way, with the
// same outputs, and a recipe in a file of its own has the plan of one within the text.
func TestX210_RefactorChangesNoResult(t *testing.T) {
	seeds := uint64(150)
	if os.Getenv("ROUX_LONG") != "" {
		seeds = 4000
	}
	if testing.Short() {
		seeds = 50
	}
	e, file := opened(t)
	moved, completed, files, refusals, by, written := 0, 0, 0, map[string]int{}, map[string]int{}, 0
	for seed := range seeds {
		name := []string{"recipe", "flow", "pipeline", "dag", "pipeline", "flow"}[seed%6]
		text := drawn(seed, name)
		opt := compile.Options{Actions: declared()}
		main, err := refactor.Load("main.yaml", text, opt)
		if name == "pipeline" && err == nil {
			if also, err := refactor.Load("main.yaml", asWritten(seed, text), opt); err == nil {
				main, text = also, asWritten(seed, text)
				written++
			}
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		dice := rand.New(rand.NewPCG(seed, 8))
		var was ended
		for range 3 {
			first, last := ranges(t, text, dice)
			x := refactor.Extraction{First: first, Last: last, Name: "part"}
			res, err := main.Extract(x)
			if err != nil {
				refusals[short(err)]++
				continue
			}
			if was.status == "" {
				was = play(t, e, text, file)
			}
			moved++
			by[name]++
			if was.status == "completed" {
				completed++
			}
			if is := play(t, e, res.Text, file); is.status != was.status || is.outputs != was.outputs {
				t.Fatalf("seed %d, steps %s to %s: the run was %v, and is %v\n%s\nbecame\n%s", seed, first, last, was, is, text, res.Text)
			}
			x.Path = "part.yaml"
			apart, err := main.Extract(x)
			if err != nil {
				t.Fatalf("seed %d: in the text it works, and not in a file: %v", seed, err)
			}
			opt.Recipes = folder{"part.yaml": apart.New}
			p, _, _, diags := compile.Source("main.yaml", apart.Text, opt)
			q, _, _, _ := compile.Source("main.yaml", res.Text, compile.Options{Actions: declared()})
			if p == nil || p.Hash() != q.Hash() {
				t.Fatalf("seed %d: %v\n%s\nand\n%s\nis not\n%s", seed, diags, apart.Text, apart.New, res.Text)
			}
			files++
		}
	}
	t.Logf("%d moved, of %d that complete, by dialect %v, %d as people write them; refused: %v", moved, completed, by, written, refusals)
	for _, name := range []string{"recipe", "dag", "flow", "pipeline"} {
		if by[name] < int(seeds)/20 {
			t.Errorf("of the dialect %s %d were moved: the test sees too little", name, by[name])
		}
	}
	if moved < int(seeds)/4 || completed < moved/5 {
		t.Errorf("%d were moved, and %d of the runs complete: the test sees too little", moved, completed)
	}
}

func short(err error) string {
	words := strings.Fields(fault.Message(err))
	return strings.Join(words[min(5, len(words)):min(16, len(words))], " ")
}

func declared() catalogue.Actions {
	var list []*action.Action
	for _, a := range pure() {
		list = append(list, &a)
	}
	return catalogue.New(list...)
}

// A folder has recipes by their paths.
type folder map[string][]byte

func (f folder) File(_, path string) (*compile.Text, error) {
	if text, ok := f[path]; ok {
		return &compile.Text{File: path, Data: bytes.Clone(text)}, nil
	}
	return nil, fault.New(fault.RecipeNotFound, "no %s", path)
}

func (f folder) Find(name, _ string) (*compile.Text, error) {
	return nil, fault.New(fault.RecipeNotFound, "no %s", name)
}

func (f folder) Names() []string { return nil }
