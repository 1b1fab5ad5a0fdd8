// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"testing"
)

func TestSchedules(t *testing.T) {
	pl := NewPlayer(Options{Source: Drawn{}})
	var all Stats
	for seed := range uint64(500) {
		res, err := pl.Play(seed)
		if err != nil {
			t.Fatal(err)
		}
		if res.Err != nil {
			t.Errorf("seed %d: %v", seed, res.Err)
			if seed > 100 {
				break
			}
		}
		all.Add(&res.Stats)
	}
	t.Logf("%+v", all)
	all.EachFault(func(name string, n int64) { t.Log(name, n) })
}
