// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// play plays the scenes of a row as tests.
func play(t *testing.T, row string) {
	t.Helper()
	b := benchOf(t)
	played := 0
	for _, sc := range scenes {
		name, ok := strings.CutPrefix(sc.name, row+"_")
		if !ok {
			continue
		}
		played++
		t.Run(name, func(t *testing.T) {
			if sc.long && os.Getenv("ROUX_LONG") == "" {
				t.Skip("takes half a minute; ROUX_LONG=1 plays it, and so does `go run ./sim/kill -faults`")
			}
			sc.play(b.newStage(t, sc.name))
		})
	}
	if played == 0 {
		t.Errorf("no scene of %s", row)
	}
}

// F31: a full disk, by failing writes and by a real small file system.
func TestF31_DiskFull(t *testing.T) { play(t, "F31") }

// F32: syncs that fail, are slow, or never end.
func TestF32_DiskFails(t *testing.T) { play(t, "F32") }

// F34: too few descriptors for the work, for the store, and for the socket.
func TestF34_Descriptors(t *testing.T) { play(t, "F34") }

// F35, F07: processes that are stopped and go on.
func TestF35_StoppedProcess(t *testing.T) { play(t, "F35") }
func TestF07_StoppedProcess(t *testing.T) { play(t, "F07") }

// F45: a stop that was asked for.
func TestF45_Drain(t *testing.T) { play(t, "F45") }
