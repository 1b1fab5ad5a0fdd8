// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"encoding/json"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/importer/syntax"
	"github.com/roux-engine/roux/internal/jsonx"
)

// settle returns the env behind a step with a result. If others catch the failure of the step, what
// becomes of the result waits for the way on which it has completed.
func (s *state) settle(steps []*recipe.Step, step *recipe.Step, e env, result cel) ([]*recipe.Step, env) {
	steps = append(steps, step)
	if after := s.handled(step, e); after.vars != nil && after.vars[caught].src == step.ID {
		return steps, after.put(raw, result)
	}
	more, e := s.keep(step.ID, s.result(e, result))
	return append(steps, more...), e
}

// after is what settle left to do.
func (s *state) after(e env) ([]*recipe.Step, env) {
	id, result := e.vars[caught].src, e.vars[raw]
	return s.keep(id, s.result(restore(e), result))
}

// keep returns a step that yields the document, unless it is the output of a step already.
func (s *state) keep(id string, e env) ([]*recipe.Step, env) {
	if isOutput(e.doc) {
		return nil, e
	}
	t := s.w.transform(id+"-result", e.doc)
	return []*recipe.Step{t}, e.with(output(t.ID))
}

// isOutput reports whether an expression only names the output of a step, the input, or an item.
func isOutput(c cel) bool {
	return c.atom && !strings.ContainsAny(c.src, "({ ?") && (strings.HasSuffix(c.src, ".output") || !strings.Contains(c.src, "steps"))
}

// body is what a state gives to its task, its branches or its items. The document is the output of a step.
func (s *state) body(e env) ([]*recipe.Step, env) {
	in := s.input(e)
	if s.jsonata {
		in = s.template("Arguments", e)
	} else {
		in = s.template("Parameters", in)
	}
	if isOutput(in.doc) {
		return nil, in
	}
	t := s.w.transform(s.key()+"-input", in.doc)
	return []*recipe.Step{t}, in.with(output(t.ID))
}

func (s *state) parallel(e env) ([]*recipe.Step, env) {
	steps, in := s.body(e)
	list := s.get("Branches")
	if !list.list("Branches") || len(list.items()) == 0 {
		s.refuse("the Parallel %q needs Branches", syntax.Short(s.key()))
		return steps, e
	}
	step, result := s.again(in, func(w *writer, id string, in env) (*recipe.Step, cel) {
		p := &recipe.Parallel{}
		for _, b := range list.items() {
			if !b.object("a branch") {
				continue
			}
			b.get("Comment").drop("a comment")
			body, out, alive := s.machine(w, b, in)
			if alive {
				body = w.yield(s.key()+"-branch", body, out.doc)
			}
			b.rest("a branch")
			p.Branches = append(p.Branches, body)
		}
		return &recipe.Step{ID: id, Parallel: p}, call(isList, "%s.branches.map(b, b.output)", output(id).src)
	})
	s.mapped("Parallel %q: step %s", syntax.Short(s.key()), step.ID)
	return s.settle(steps, step, e, result)
}

// again returns the step that make makes; if the state is retried, in a recipe of its own.
func (s *state) again(in env, make func(w *writer, id string, in env) (*recipe.Step, cel)) (*recipe.Step, cel) {
	pol := s.retry()
	if pol == nil {
		return make(s.w, s.w.id(s.key()), in)
	}
	was := s.context
	s.context = aslContext{state: was.state, inner: true}
	defer func() { s.context = was }()
	return s.w.nested(s.key(), pol, in, func(w *writer, in env) ([]*recipe.Step, cel, bool) {
		step, result := make(w, w.id(s.key()), in)
		return []*recipe.Step{step}, result, true
	})
}

func (s *state) mapState(e env) ([]*recipe.Step, env) {
	for _, name := range []string{"ItemReader", "ItemBatcher", "ResultWriter", "ToleratedFailureCount", "ToleratedFailurePercentage", "ToleratedFailureCountPath", "ToleratedFailurePercentagePath", "MaxConcurrencyPath"} {
		s.get(name).refuse("%s is not supported: items are a list, and each of them must complete", name)
	}
	limit := int64(40) // as many as an inline map of the States Language runs at once
	if n, ok := s.get("MaxConcurrency").whole(); ok && n > 0 {
		limit = min(n, 10_000)
	}
	s.get("Label").drop("a label")
	processor := s.get("ItemProcessor")
	if !processor.there() {
		processor = s.get("Iterator")
	}
	if !processor.object("ItemProcessor") {
		s.refuse("the Map %q needs ItemProcessor", syntax.Short(s.key()))
		return nil, e
	}
	config := processor.get("ProcessorConfig")
	if mode := config.get("Mode"); mode.str() == "DISTRIBUTED" {
		mode.refuse("a map of mode DISTRIBUTED is not supported: its items run in the run of the recipe")
	}
	config.get("ExecutionType").drop("the type of the executions of a distributed map")
	config.rest("ProcessorConfig")
	step, result := s.again(s.input(e), func(w *writer, id string, in env) (*recipe.Step, cel) {
		return s.loop(w, id, processor, limit, in), output(id)
	})
	s.mapped("Map %q: step %s", syntax.Short(s.key()), step.ID)
	return s.settle(nil, step, e, result)
}

// over returns the list of a map.
func (s *state) over(in env) cel {
	if p := s.get("Items"); p.there() {
		return s.payload(p, in)
	}
	if p := s.get("ItemsPath"); p.there() {
		return s.pathOf(p, in)
	}
	return in.doc
}

// loop returns the loop of a map.
func (s *state) loop(w *writer, id string, processor value, limit int64, outer env) *recipe.Step {
	l := &recipe.Loop{Over: s.over(outer).src, MaxConcurrency: limit}
	l.As, l.Index = w.item()
	defer func() { w.loops-- }()
	was := s.context
	s.context = aslContext{state: was.state, item: l.As, index: l.Index, inner: was.inner}
	defer func() { s.context = was }()
	in := outer.with(atom(l.As, unknown))
	for _, name := range []string{"ItemSelector", "Parameters"} {
		if sel := s.get(name); sel.there() {
			t := w.transform(s.key()+"-item", s.payload(sel, outer))
			l.Steps = append(l.Steps, t)
			in = in.with(output(t.ID))
		}
	}
	body, out, alive := s.machine(w, processor, in)
	processor.get("Comment").drop("a comment")
	processor.rest("an item processor")
	if alive {
		body = w.yield(s.key()+"-iteration", body, out.doc)
	}
	l.Steps = append(l.Steps, body...)
	return &recipe.Step{ID: id, Loop: l}
}

// resource returns what an optimized integration calls, without how it waits.
func resource(arn string) (service, suffix string, ok bool) {
	rest, ok := strings.CutPrefix(arn, "arn:aws:states:::")
	service, suffix, _ = strings.Cut(rest, ".")
	return service, suffix, ok
}

// actionOf returns the name of the action that a resource becomes without a mapping.
func actionOf(arn string) string {
	if service, _, ok := resource(arn); ok {
		return strings.TrimPrefix(service, "aws-sdk:")
	}
	parts := strings.Split(arn, ":")
	for i, p := range parts[:len(parts)-1] {
		if (p == "function" || p == "activity") && i >= 3 {
			return parts[i+1]
		}
	}
	return arn
}

func (s *state) task(e env) ([]*recipe.Step, env) {
	res := s.get("Resource")
	arn, ok := res.text()
	if !ok {
		s.refuse("the Task %q needs Resource", syntax.Short(s.key()))
		return nil, e
	}
	service, suffix, integrated := resource(arn)
	if suffix == "waitForTaskToken" {
		res.refuse("a task that waits for a token (.waitForTaskToken) is not supported: use a step that waits for a signal")
		return nil, e
	}
	if integrated && strings.HasPrefix(suffix, "sync") && !strings.HasPrefix(service, "states:") {
		res.changed("the action must wait for the end of the job itself (.%s)", suffix)
	}
	step := &recipe.Step{ID: s.w.id(s.key()), RetryPolicy: s.retry()}
	if n, ok := s.get("TimeoutSeconds").whole(); ok && n > 0 {
		step.Timeout = seconds(n)
	}
	s.get("TimeoutSecondsPath").refuse("the timeout of a step is fixed: use TimeoutSeconds")
	s.get("HeartbeatSeconds").drop("actions have no heartbeat that a step could wait for")
	s.get("HeartbeatSecondsPath").drop("actions have no heartbeat that a step could wait for")
	s.get("Credentials").drop("actions have the credentials of the operator of Roux")
	in := s.input(e)
	args := s.get("Parameters")
	if s.jsonata {
		args = s.get("Arguments")
	}
	switch {
	case service == "lambda:invoke" && integrated:
		return s.settle(nil, step, e, s.lambda(step, args, in))
	case service == "http:invoke" && integrated:
		return s.settle(nil, step, e, s.http(step, args, in))
	case service == "states:startExecution" && integrated:
		return s.settle(nil, step, e, s.start(step, res, suffix, args, in))
	}
	step.Action = s.action(res, arn, actionOf(arn))
	s.arguments(step, args, in)
	s.mapped("Task %q: step %s calls the action %s", syntax.Short(s.key()), step.ID, step.Action.Name)
	return s.settle(nil, step, e, output(step.ID))
}

// arguments gives an action its inputs: each field of the arguments, or the document as input.
func (s *state) arguments(step *recipe.Step, args value, in env) {
	if !args.is(jsonx.Object) {
		doc := in.doc
		if args.there() {
			doc = s.payload(args, in)
		}
		bind(step, "input", doc)
		return
	}
	for _, f := range args.items() {
		s.bindField(step, s.fieldName(f), f, in)
	}
}

// bindField gives an action one of its inputs.
func (s *state) bindField(step *recipe.Step, name string, f value, in env) {
	if s.constant(f) {
		fixed(step, name, f.literal())
		return
	}
	bind(step, name, s.field(f, in))
}

func bind(step *recipe.Step, name string, c cel) {
	if step.InputBindings == nil {
		step.InputBindings = map[string]recipe.Binding{}
	}
	step.InputBindings[name] = recipe.Binding{Expression: c.src}
}

// fixed gives an action or a recipe an input that is always the same.
func fixed(step *recipe.Step, name string, v any) {
	raw, ok := parameter(v)
	if !ok {
		bind(step, name, literal(v))
		return
	}
	var set *map[string]json.RawMessage
	switch {
	case step.Recipe != nil:
		set = &step.Recipe.Inputs
	case step.Action != nil:
		set = &step.Action.Parameters
	default:
		return // the definition was refused
	}
	if *set == nil {
		*set = map[string]json.RawMessage{}
	}
	(*set)[name] = raw
}

func (s *state) lambda(step *recipe.Step, args value, in env) cel {
	fn := args.get("FunctionName")
	name := fn.str()
	if !s.constant(fn) {
		fn.refuse("the name of a function must be fixed")
	}
	step.Action = s.action(fn, name, actionOf(strings.TrimSuffix(name, ":$LATEST")))
	for _, drop := range []string{"InvocationType", "LogType", "Qualifier", "ClientContext"} {
		args.get(drop).drop("a setting of the Lambda service")
	}
	payload := args.peek("Payload")
	if !payload.there() {
		payload = args.peek("Payload.$")
	}
	if payload.there() {
		args.get(payload.key())
	}
	if payload.is(jsonx.Object) {
		for _, f := range payload.items() {
			s.bindField(step, s.fieldName(f), f, in)
		}
	} else if payload.there() {
		bind(step, "input", s.field(payload, in))
	}
	args.rest("the arguments of lambda:invoke")
	s.mapped("Task %q: step %s calls the action %s", syntax.Short(s.key()), step.ID, step.Action.Name)
	return mapOf([]field{{"Payload", output(step.ID)}, {"StatusCode", atom("200", isNumber)}})
}

func (s *state) http(step *recipe.Step, args value, in env) cel {
	step.Action = s.action(s.peek("Resource"), "http:invoke", "http")
	for from, to := range map[string]string{"ApiEndpoint": "url", "Method": "method", "Headers": "headers", "QueryParameters": "query", "RequestBody": "body"} {
		for _, suffix := range []string{"", ".$"} {
			if f := args.get(from + suffix); f.there() {
				s.bindField(step, to, f, in)
			}
		}
	}
	args.get("Authentication").drop("a connection of EventBridge: put the credential into headers with {{ secret('name') }}")
	args.get("InvocationConfig").drop("a connection of EventBridge: put the credential into headers with {{ secret('name') }}")
	args.rest("the arguments of http:invoke")
	out := output(step.ID)
	s.mapped("Task %q: step %s calls the action %s", syntax.Short(s.key()), step.ID, step.Action.Name)
	return mapOf([]field{{"ResponseBody", out.strict("body")}, {"StatusCode", out.strict("status")}, {"Headers", out.strict("headers")}})
}

// start returns the result of a step that runs another recipe.
func (s *state) start(step *recipe.Step, res value, suffix string, args value, in env) cel {
	if !strings.HasPrefix(suffix, "sync") {
		res.refuse("an execution that nobody waits for is not supported: use .sync:2")
	}
	arn := args.get("StateMachineArn")
	if !s.constant(arn) {
		arn.refuse("the name of a state machine must be fixed")
	}
	name := arn.str()
	step.Recipe = &recipe.Child{Ref: strings.Trim(noID.ReplaceAllString(name[strings.LastIndexByte(name, ':')+1:], "-"), "-")}
	args.get("Name").drop("the name of an execution")
	input := args.get("Input")
	if !input.there() {
		input = args.get("Input.$")
	}
	if input.is(jsonx.Object) {
		for _, f := range input.items() {
			s.bindField(step, s.fieldName(f), f, in)
		}
	} else {
		input.refuse("the input of an execution must be an object, whose fields become the input of the recipe")
	}
	args.rest("the arguments of startExecution")
	s.mapped("Task %q: step %s runs the recipe %s", syntax.Short(s.key()), step.ID, step.Recipe.Ref)
	return mapOf([]field{{"Output", output(step.ID).strict("output")}})
}
