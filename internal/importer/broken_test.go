// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/fuzztest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden file")

// broken are definitions of which nothing may become a recipe.
var broken = []struct{ file, text string }{
	{"cut.json", `{"StartAt": "A", "States": {"A": {"Type": "Pass"`},
	{"nothing.yaml", "a: 1\n"},
	{"recipe.yaml", "name: x\nsteps: []\n"},
	{"circle.json", `{"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 1, "Next": "B"}, "B": {"Type": "Choice", "Choices": [{"Variable": "$.done", "BooleanEquals": true, "Next": "C"}], "Default": "A"}, "C": {"Type": "Succeed"}}}`},
	{"states.json", `{"StartAt": "A", "States": {"A": {"Type": "Task", "Resource": "f", "TimeoutSecondsPath": "$.t", "ResultPath": "$$.x", "Next": "Nowhere"}, "B": {"Type": "Passs", "End": true}}}`},
	{"expressions.json", `{"StartAt": "A", "States": {"A": {"Type": "Pass", "Parameters": {"a.$": "$.x[?(@.y)]", "b.$": "$..z", "c.$": "States.Hash($.x, 'MD5')", "d.$": "States.Format('{}')", "e.$": "$unset", "f.$": "$.x[-1]"}, "End": true}}}`},
	{"distributed.json", `{"StartAt": "M", "States": {"M": {"Type": "Map", "ItemReader": {"Resource": "arn:aws:states:::s3:getObject"}, "ItemProcessor": {"ProcessorConfig": {"Mode": "DISTRIBUTED"}, "StartAt": "T", "States": {"T": {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken", "End": true}}}, "End": true}}}`},
	{"jsonata.json", `{"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": {"Type": "Pass", "Output": {"a": "{% $states.input.(x; y) %}", "b": "{% function($x){$x} %}", "c": "{% items[price > 3] %}", "d": "{% $sort($states.input.l) %}"}, "End": true}}}`},
	{"argo.yaml", `
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: x-}
spec:
  entrypoint: main
  hooks: {exit: {template: a}}
  templates:
    - name: main
      dag:
        tasks:
          - {name: A, template: a, depends: "B.Done"}
          - {name: B, template: nowhere, depends: A}
          - {name: C, template: main}
          - {name: D, template: a, when: "{{=1 + 1}} == 2", arguments: {artifacts: [{name: f}]}}
    - name: a
      inputs: {artifacts: [{name: f}]}
      container: {image: x, envFrom: [{secretRef: {name: s}}], colour: red}
`},
	{"serverless.yaml", `
document: {dsl: 1.0.0, namespace: x, name: x, version: 1.0.0}
do:
  - a: {emit: {event: {with: {}}}}
  - b: {set: {x: "${ reduce .[] as $i (0; . + $i) }", y: "a ${ .b }", z: "${ .[] }", u: "${ $nobody }"}}
  - c: {call: grpc, with: {}}
  - d: {for: {in: .l, while: .x}, do: [{e: {call: f, with: {x: "${ . }"}}}]}
  - f: {switch: [{one: {when: .x, then: nowhere}}]}
`},
	{"fork.yaml", "document: {dsl: 1.0.0, namespace: x, name: x, version: 1.0.0}\ndo:\n  - f:\n      fork:\n  - g: {fork: {branches: []}}\n"},
	{"for.yaml", "document: {dsl: 1.0.0, namespace: x, name: x, version: 1.0.0}\ndo:\n  - f: {for: {in: .l}}\n"},
	{"branches.json", `{"StartAt": "A", "States": {"A": {"Type": "Parallel", "Branches": [], "End": true}}}`},
	{"kestra.yaml", "id: x\nnamespace: y\ntasks:\n  - {id: a, type: io.kestra.plugin.core.log.Log}\n"},
	{"conductor.json", `{"name": "x", "schemaVersion": 2, "tasks": []}`},
}

func refusal(t *testing.T, file, text string) string {
	res, err := Import(file, []byte(text), Options{})
	var b strings.Builder
	var f *fault.Error
	switch {
	case errors.As(err, &f) && len(f.Diags) > 0:
		for _, d := range f.Diags {
			b.WriteString(d.String() + "\n")
		}
	case err != nil:
		b.WriteString(err.Error() + "\n")
	case res.Text != nil:
		t.Errorf("%s became\n%s", file, res.Text)
	default:
		for _, n := range res.Notes {
			if n.Kind == Refused {
				b.WriteString(n.String() + "\n")
			}
		}
	}
	return b.String()
}

// TestBroken: what cannot be imported is refused with all its places and reasons.
func TestBroken(t *testing.T) {
	var b strings.Builder
	for _, d := range broken {
		said := refusal(t, d.file, d.text)
		if said == "" {
			t.Errorf("%s is refused without a reason", d.file)
		}
		b.WriteString("## " + d.file + "\n" + said)
	}
	const golden = "testdata/broken.txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestBombs: a definition that would become very much is refused soon.
func TestBombs(t *testing.T) {
	var choices strings.Builder
	for i := range 60 { // each state leads to the next one in two ways, one of which may end: the ways do not join
		n := string(rune('A'+i%26)) + strings.Repeat("x", i/26)
		m := string(rune('A'+(i+1)%26)) + strings.Repeat("x", (i+1)/26)
		choices.WriteString(`"` + n + `": {"Type": "Choice", "Choices": [{"Variable": "$.a", "IsPresent": true, "Next": "` + m + `"}, {"Variable": "$.b", "IsPresent": true, "Next": "End"}], "Default": "P` + n + `"}, "P` + n + `": {"Type": "Pass", "Next": "` + m + `"},`)
	}
	last := string(rune('A'+60%26)) + strings.Repeat("x", 60/26)
	bombs := map[string]string{
		"ways": `{"StartAt": "A", "States": {` + choices.String() + `"` + last + `": {"Type": "Succeed"}, "End": {"Type": "Succeed"}}}`,
		"sums": "document: {dsl: 1.0.0, name: x, namespace: x, version: 1.0.0}\ndo:\n  - a: {set: {x: \"${ " + strings.Repeat("(.a + ", 40) + ".a" + strings.Repeat(")", 40) + " }\"}}\n",
		"deep": "document: {dsl: 1.0.0, name: x, namespace: x, version: 1.0.0}\ndo:\n  - a: {set: {x: \"${ " + strings.Repeat("(", 5000) + ".a" + strings.Repeat(")", 5000) + " }\"}}\n",
		"calls": "apiVersion: v1\nkind: Workflow\nmetadata: {name: x}\nspec:\n  entrypoint: t0\n  templates:\n" + func() string {
			var b strings.Builder
			for i := range 30 {
				n, m := "t"+strconv.Itoa(i), "t"+strconv.Itoa(i+1)
				b.WriteString("    - {name: " + n + ", dag: {tasks: [{name: a, template: " + m + "}, {name: b, template: " + m + "}]}}\n")
			}
			return b.String() + "    - {name: t30, container: {image: x}}\n"
		}(),
	}
	for name, text := range bombs {
		start := time.Now()
		res, err := Import("x", []byte(text), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if res.Text != nil && len(res.Text) > 4<<20 {
			t.Errorf("%s became %d bytes", name, len(res.Text))
		} else {
			t.Logf("%s: %d bytes in %v", name, len(res.Text), time.Since(start))
		}
	}
}

// FuzzImport: any text becomes a recipe that has the form of one, or is refused, and each name in it is counted.
func FuzzImport(f *testing.F) {
	for _, d := range broken {
		f.Add([]byte(d.text))
	}
	for _, name := range []string{"testdata/asl_behaviour.txt", "testdata/serverless_behaviour.txt"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\n## ") {
			_, text, _ := strings.Cut(part, "\n")
			text, _, _ = strings.Cut(text, "\n----\n")
			if strings.Contains(name, "serverless") {
				text = "document: {dsl: 1.0.0, namespace: x, name: x, version: 1.0.0}\n" + text
			}
			f.Add([]byte(text))
		}
	}
	if _, err := os.Stat(sharedDir()); err == nil {
		for _, text := range definitions(f) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 16<<10 {
			return
		}
		for _, from := range append(Names(), "") {
			var res *Result
			var err error
			fuzztest.Bounded(t, "Import", func() { res, err = Import("x.yaml", text, Options{From: from}) })
			if err != nil {
				continue
			}
			if k := res.Keys; k.Mapped+k.Dropped+k.Refused != k.All {
				t.Errorf("%+v do not add up", k)
			}
			if res.Text == nil {
				continue
			}
			tree, d := form.Read("x.yaml", res.Text, form.Options{MaxBytes: form.MaxBytes})
			if tree == nil {
				t.Fatalf("no YAML: %v\n%s", d.Diagnostics(), res.Text)
			}
			d.Decode(tree, recipe.Form, &recipe.Recipe{})
			for _, p := range d.Diagnostics() {
				t.Errorf("%s\n%s", p, res.Text)
			}
		}
	})
}
