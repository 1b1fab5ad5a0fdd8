// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"os"
	"time"
)

func datasync(f *os.File) error { return f.Sync() }

// On systems where these are unknown they are zero, and the bars that need them count as
// missed.
func cpu() time.Duration { return 0 }
func rss() float64       { return 0 }
func pss() float64       { return 0 }
func written() int64     { return 0 }

func cpuOf(int) time.Duration { return 0 }
func rssOf(int) float64       { return 0 }

func machine(string) map[string]string { return map[string]string{} }
