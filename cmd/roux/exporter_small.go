// SPDX-License-Identifier: Apache-2.0

//go:build small

package main

import "github.com/roux-engine/roux/internal/telemetry"

// exporter returns nothing: a small binary sends no traces, and saves what that takes.
func exporter() telemetry.NewExporter { return nil }
