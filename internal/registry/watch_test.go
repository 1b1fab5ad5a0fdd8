// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/userfile"
)

// A file is read when it is first seen at the start, when two looks after a change find it
// the same, and while its time is too near to prove anything; it has gone after two looks.
func TestWatch(t *testing.T) {
	var w watch
	start := time.Unix(1_800_000_000, 0)
	old := func(size int64) userfile.Stamp { return userfile.Stamp{Size: size, Modified: start.Add(-time.Hour)} }
	for i, at := range []struct {
		stamps map[string]userfile.Stamp
		want   string // what is read and what has gone
	}{
		{map[string]userfile.Stamp{"a": old(1), "b": old(1)}, "[a b] []"},
		{map[string]userfile.Stamp{"a": old(1), "b": old(1)}, "[] []"},
		{map[string]userfile.Stamp{"a": old(2), "b": old(1)}, "[] []"}, // half of it may be written
		{map[string]userfile.Stamp{"a": old(3), "b": old(1)}, "[] []"},
		{map[string]userfile.Stamp{"a": old(3), "b": old(1), "c": old(1)}, "[a] []"},
		{map[string]userfile.Stamp{"a": old(3), "c": old(1)}, "[c] []"}, // b is replaced
		{map[string]userfile.Stamp{"a": old(3), "b": old(1), "c": old(1)}, "[] []"},
		{map[string]userfile.Stamp{"a": old(3), "c": old(1)}, "[] []"},
		{map[string]userfile.Stamp{"a": old(3), "c": old(1)}, "[] [b]"},
		{map[string]userfile.Stamp{"a": old(3), "c": {Size: 1, Modified: start}}, "[] []"},
		{map[string]userfile.Stamp{"a": old(3), "c": {Size: 1, Modified: start}}, "[c] []"},
		{map[string]userfile.Stamp{"a": old(3), "c": {Size: 1, Modified: start}}, "[c] []"}, // it may have changed again
	} {
		read, gone := w.look(at.stamps, start.Add(time.Second))
		if got := fmt.Sprint(read, gone); got != at.want {
			t.Errorf("look %d: %s, want %s", i, got, at.want)
		}
		for _, name := range read {
			w.took(name, []byte(name))
		}
	}
	if read, _ := w.look(map[string]userfile.Stamp{"a": old(3), "c": {Size: 1, Modified: start}}, start.Add(time.Minute)); read != nil {
		t.Errorf("%v is read again", read)
	}
	if w.took("a", []byte("a")) || !w.took("a", []byte("another")) {
		t.Error("texts are not told apart")
	}
}
