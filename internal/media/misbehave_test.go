// SPDX-License-Identifier: Apache-2.0

package media

import (
	"os"
	"strings"
	"time"
)

// misbehave does what hostile files make parsers do.
func misbehave(kind string) {
	if stop := signalMisbehaviours[kind]; stop != nil {
		stop()
	}
	switch kind {
	case "hang":
		for i := 0; ; i++ {
			sink = i
		}
	case "panic":
		panic("misbehaviour")
	case "goroutine panic":
		go panic("misbehaviour in a goroutine without recover")
		select {}
	case "goroutine nil":
		go func() { sink = *nilPointer }()
		select {}
	case "memory":
		var kept [][]byte
		for {
			b := make([]byte, 8<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			kept = append(kept, b)
			sink = len(kept)
		}
	case "stack":
		sink = deeper(1)
	case "exit":
		os.Exit(3)
	case "wait":
		<-released
	case "sleep":
		time.Sleep(time.Hour)
	case "garbage":
		os.Stdout.WriteString("{\"doc\": 12}\n")
		os.Exit(0)
	case "environment":
		for _, kv := range os.Environ() {
			switch name, _, _ := strings.Cut(kv, "="); name {
			case childEnv, "GOTRACEBACK", "GOMAXPROCS", "SYSTEMROOT", "GOCOVERDIR":
			default:
				panic("a child sees " + name)
			}
		}
	case "write":
		// The child must not be able to write files.
		if f, err := os.CreateTemp("", "roux-media"); err == nil {
			if _, err := f.WriteString("x"); err == nil {
				panic("a child wrote a file")
			}
			os.Remove(f.Name())
		}
	}
}

func deeper(n int) int { return deeper(n+1) + 1 } //nolint:staticcheck // SA5007: it must never end

// released ends the misbehaviour "wait".
var released chan struct{}

var sink int

// nilPointer is a variable, so that the compiler does not detect the fault.
var nilPointer *int
