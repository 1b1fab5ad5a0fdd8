// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// TestReadTasks compares the tasks of answers with those that encoding/json reads.
func TestReadTasks(t *testing.T) {
	full := WorkerTask{
		Lease: "l1", Action: "a", Version: "1.0.0", Input: json.RawMessage(`{"b":[1,"}"],"a":1.5}`), Account: "acme", Run: "r", Step: "s[0]/x",
		Attempt: 2, EffectKey: "e", TraceParent: "00-1-2-01", LeaseMS: 30_000, ExpiresAt: time.Date(2026, 11, 29, 1, 2, 3, 456_000, time.UTC),
	}
	for i := range reflect.TypeFor[WorkerTask]().NumField() {
		if reflect.ValueOf(full).Field(i).IsZero() {
			t.Fatalf("the test has no %s", reflect.TypeFor[WorkerTask]().Field(i).Name)
		}
	}
	escaped := full
	escaped.Step = `a"b`
	for name, c := range map[string]struct {
		tasks []WorkerTask
		fast  bool
	}{"none": {[]WorkerTask{}, true}, "two": {[]WorkerTask{full, {Input: json.RawMessage(`null`)}}, true}, "an escape": {[]WorkerTask{full, escaped}, false}} {
		t.Run(name, func(t *testing.T) {
			answer, err := json.Marshal(map[string]any{"tasks": c.tasks, "other": []int{1}})
			if err != nil {
				t.Fatal(err)
			}
			got, ok := readTasks(append(answer, '\n'))
			if ok != c.fast || ok && len(got)+len(c.tasks) > 0 && !reflect.DeepEqual(got, c.tasks) {
				t.Errorf("got %+v, %v\nwant %+v, %v", got, ok, c.tasks, c.fast)
			}
		})
	}
	for _, answer := range []string{``, `[]`, `{"tasks":{}}`, `{"tasks":[1]}`, `{"tasks":[{"attempt":"1"}]}`, `{"tasks":[{"lease":1}]}`, `{"tasks":[{"expiresAt":"now"}]}`} {
		if _, ok := readTasks([]byte(answer)); ok {
			t.Errorf("%s is accepted", answer)
		}
	}
}
