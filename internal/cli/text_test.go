// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"reflect"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

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

func TestAgo(t *testing.T) {
	now := time.UnixMicro(1e15)
	if got := ago(now, 1e15-90e6); got != "1 m ago" {
		t.Errorf("ago gives %q", got)
	}
}
