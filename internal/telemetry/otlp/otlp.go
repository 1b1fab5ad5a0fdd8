// SPDX-License-Identifier: Apache-2.0

// Package otlp sends spans to a collector by OTLP over HTTP.
//
// It is a package of its own because the exporter compiles gRPC, which nothing else here
// needs: tests of telemetry do without it, and so does a binary built with -tags small. It
// decides how a collector is reached, and never what a span contains.
package otlp

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/telemetry"
)

// everywhere are all addresses. The operator, and no recipe, names the collector, which is
// usually on the same machine.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// New returns an exporter that sends spans to the collector at a URL, such as
// http://localhost:4318; without a path to /v1/traces there. Headers, for example for
// authentication, are those of the variable OTEL_EXPORTER_OTLP_HEADERS. An export that
// fails is not tried again, and takes no longer than timeout.
func New(ctx context.Context, endpoint string, timeout time.Duration) (*telemetry.Exporter, error) {
	u, err := egress.ParseURL(endpoint)
	if err != nil {
		return nil, fault.New(fault.ConfigInvalid, "trace.endpoint: %s", fault.Message(err))
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	out := egress.New(egress.Config{Allow: everywhere})
	e, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(u.String()),
		otlptracehttp.WithTimeout(timeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithHTTPClient(out.HTTP(timeout)),
	)
	if err != nil {
		return nil, fault.New(fault.ConfigInvalid, "trace.endpoint: %v", err)
	}
	return telemetry.ExportTo(&exporter{e, out}), nil
}

type exporter struct {
	sdktrace.SpanExporter
	out *egress.Client
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error {
	defer e.out.Close()
	return e.SpanExporter.Shutdown(ctx)
}
