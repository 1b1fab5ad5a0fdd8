// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// No binary has gRPC or html/template, which OpenTelemetry's exporter brings along. One with -tags small
// sends no traces and has no simulator, no time zones, no encodings of East Asian text, no drawings, no
// conversions of HTML and Markdown, no AsyncAPI document, no workflows and no lenses over HTTP, no emulator and no adapter for Anthropic's protocol. Commands that look from elsewhere (diff, top, listen,
// import, trigger-webhook), and the salvage of damaged directories, are left to the full one. Neither have the tests of telemetry, and programs
// with actions of their own have nothing of telemetry.
func TestSmallBuild(t *testing.T) {
	const grpc, prometheus, otel = "google.golang.org/grpc", "github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel/sdk/trace"
	const exporter = "go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	for _, c := range []struct {
		args    []string
		without []string
	}{
		{[]string{"./cmd/roux"}, []string{grpc, "html/template"}},
		{[]string{"-tags", "small", "./cmd/roux"}, []string{grpc, exporter, "time/tzdata", "github.com/roux-engine/roux/internal/simulate", "github.com/roux-engine/roux/internal/compile/dag", "github.com/roux-engine/roux/internal/compile/flow", "github.com/roux-engine/roux/internal/lens", "github.com/anthropics/anthropic-sdk-go", "github.com/roux-engine/roux/internal/provider/emulate", "html/template", "golang.org/x/text/encoding/japanese", "github.com/yuin/goldmark", "golang.org/x/net/html", "golang.org/x/text/encoding/traditionalchinese"}},
		{[]string{"-test", "./internal/telemetry"}, []string{grpc, exporter}},
		{[]string{"-test", "./internal/cli"}, []string{grpc, exporter}},
		{[]string{"."}, []string{grpc, prometheus, otel}},
		{[]string{"./docs/own-action"}, []string{grpc, prometheus, otel}},
	} {
		cmd := exec.Command("go", append([]string{"list", "-deps"}, c.args...)...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %q: %v", c.args, err)
		}
		deps := strings.Fields(string(out))
		for _, p := range c.without {
			if slices.Contains(deps, p) {
				t.Errorf("%q: %s is in the build", c.args, p)
			}
		}
	}
	cmd := exec.Command("go", "list", "-deps", "./cmd/roux")
	cmd.Dir = root
	if out, err := cmd.Output(); err != nil || !slices.Contains(strings.Fields(string(out)), exporter) {
		t.Errorf("the binary has no exporter of traces (%v)", err)
	}
}
