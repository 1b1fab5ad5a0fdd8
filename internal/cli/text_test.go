// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

func TestNearest(t *testing.T) {
	names := []string{"run", "resume", "runs", "validate", "events"}
	for _, tt := range []struct{ got, want string }{
		{"rnu", "run"}, {"vaildate", "validate"}, {"even", "events"}, {"res", "resume"}, {"xyz", ""}, {"frobnicate", ""}, {"", ""},
		{strings.Repeat("x", 1000), ""},
	} {
		if got := nearest(tt.got, names); got != tt.want {
			t.Errorf("nearest(%q) = %q, want %q", view.Cut(tt.got, 20), got, tt.want)
		}
	}
}

func TestInputs(t *testing.T) {
	schema := []byte(`{"properties": {"name": {"type": "string"}, "n": {"type": "integer"}, "maybe": {"type": ["string", "null"]}, "list": {"type": "array"}}}`)
	for _, tt := range []struct {
		args []string
		want map[string]any
		code fault.Code
	}{
		{[]string{"name=12"}, map[string]any{"name": "12"}, ""},
		{[]string{"n=9007199254740993"}, map[string]any{"n": int64(9007199254740993)}, ""},
		{[]string{"maybe=null"}, map[string]any{"maybe": "null"}, ""},
		{[]string{"other=12", "text=hello", "eq=a=b"}, map[string]any{"other": int64(12), "text": "hello", "eq": "a=b"}, ""},
		{[]string{"list=[1,2]"}, map[string]any{"list": []any{int64(1), int64(2)}}, ""},
		{[]string{"n=many"}, nil, fault.InputInvalid},
		{[]string{"list=1,2"}, nil, fault.InputInvalid},
		{[]string{"=x"}, nil, fault.Usage},
		{[]string{"x"}, nil, fault.Usage},
	} {
		got, err := inputs(tt.args, schema, nil)
		if fault.CodeOf(err) != tt.code || tt.code == "" && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("inputs(%q) = %v, %v", tt.args, got, err)
		}
	}
	set, err := setFields([]string{"in.name=x", "input.n=2", "other=true"}, schema)
	if want := (map[string]any{"name": "x", "n": int64(2), "other": true}); err != nil || !reflect.DeepEqual(set, want) {
		t.Errorf("setFields = %v, %v", set, err)
	}
}

func TestDataDir(t *testing.T) {
	t.Chdir(t.TempDir())
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	for _, tt := range []struct {
		goos string
		env  func(string) string
		want string
	}{
		{"linux", env("XDG_DATA_HOME", "/xdg", "HOME", "/home/a"), "/xdg/roux"},
		{"linux", env("XDG_DATA_HOME", "relative", "HOME", "/home/a"), "/home/a/.local/share/roux"},
		{"darwin", env("HOME", "/Users/a"), "/Users/a/Library/Application Support/roux"},
		{"windows", env("LocalAppData", "/local"), "/local/roux"},
		{"linux", env(), ""},
		{"windows", env("HOME", "/home/a"), ""},
	} {
		got, err := userDataDir(tt.goos, tt.env)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", tt.goos, got, err, tt.want)
		}
	}
	if got, err := dataDir("/flag", env("ROUX_DATA", "/env")); got != "/flag" || err != nil {
		t.Errorf("the flag gives %q, %v", got, err)
	}
	if got, err := dataDir("", env("ROUX_DATA", "/env")); got != "/env" || err != nil {
		t.Errorf("ROUX_DATA gives %q, %v", got, err)
	}
}

func TestTable(t *testing.T) {
	got := table([][]string{{"A", "B", "C"}, {"one", "é", "x"}, {"two", "long", ""}})
	if want := "A    B     C\none  é     x\ntwo  long\n"; got != want {
		t.Errorf("table gives\n%s\nwant\n%s", got, want)
	}
}

func TestAgo(t *testing.T) {
	now := time.UnixMicro(1e15)
	if got := ago(now, 1e15-90e6); got != "1 m ago" {
		t.Errorf("ago gives %q", got)
	}
}
