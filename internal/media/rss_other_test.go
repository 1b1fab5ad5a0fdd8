// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package media

import "os"

func peakMemory(*os.ProcessState) int64 { return 0 }

func ownPeakMemory() int64 { return 0 }
