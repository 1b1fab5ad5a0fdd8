// SPDX-License-Identifier: Apache-2.0

//go:build !small

package main

import (
	"github.com/roux-engine/roux/internal/telemetry"
	"github.com/roux-engine/roux/internal/telemetry/otlp"
)

// exporter returns what sends traces to a collector.
func exporter() telemetry.NewExporter { return otlp.New }
