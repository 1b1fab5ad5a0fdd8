// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime/pprof"
)

// startProfile writes a CPU profile until stop is called.
func startProfile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("start the profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a missing profile is visible to the person who asked for it
	}, nil
}
