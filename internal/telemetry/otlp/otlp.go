// SPDX-License-Identifier: Apache-2.0

// Package otlp sends spans to a collector by OTLP over HTTP.
//
// It is a package of its own because the messages of OTLP are protobufs, which tests of telemetry do
// without, and so does a binary built with -tags small. It decides how a collector is reached, and
// never what a span contains. The request is written here and not by OpenTelemetry's exporter, which
// compiles gRPC: with that a binary is 9 MB larger.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/telemetry"
)

// everywhere are all addresses. The operator, and no recipe, names the collector, which is
// usually on the same machine.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// maxAnswer bounds what is read of the answer of a collector, in bytes.
const maxAnswer = 64 << 10

// New returns an exporter that sends spans to the collector at a URL, such as
// http://localhost:4318; without a path to /v1/traces there. Headers, for example for
// authentication, are those of the variable OTEL_EXPORTER_OTLP_TRACES_HEADERS, or else
// OTEL_EXPORTER_OTLP_HEADERS. An export that fails is not tried again, and takes no longer than timeout.
func New(ctx context.Context, endpoint string, timeout time.Duration) (*telemetry.Exporter, error) {
	u, err := egress.ParseURL(endpoint)
	if err != nil {
		return nil, fault.New(fault.ConfigInvalid, "trace.endpoint: %s", fault.Message(err))
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	header, err := headers(os.Getenv)
	if err != nil {
		return nil, err
	}
	out := egress.New(egress.Config{Allow: everywhere})
	e, err := otlptrace.New(ctx, &client{url: u.String(), header: header, http: out.HTTP(timeout), timeout: timeout})
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

// headers reads the headers of requests: name=value, separated by commas, with values as in a URL. Errors
// do not repeat values.
func headers(getenv func(string) string) (http.Header, error) {
	variable := "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	if getenv(variable) == "" {
		variable = "OTEL_EXPORTER_OTLP_HEADERS"
	}
	out := http.Header{}
	for i, pair := range strings.Split(getenv(variable), ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, text, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(text))
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t\r\n:") || err != nil || strings.ContainsAny(value, "\r\n") {
			return nil, fault.New(fault.ConfigInvalid, "%s: header %d: want name=value, with the value as in a URL, and commas between headers", variable, i+1)
		}
		out.Set(name, value)
	}
	return out, nil
}

// client is an [otlptrace.Client]: it sends spans as protobufs, compressed.
type client struct {
	url    string
	header http.Header
	http   interface {
		Do(req *http.Request) (*http.Response, error)
	}
	timeout time.Duration
}

// Start implements [otlptrace.Client].
func (*client) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (*client) Stop(context.Context) error { return nil }

// UploadTraces implements [otlptrace.Client]. The message of OTLP that has the spans of a request is
// written as tracepb.TracesData is: both have the spans as field 1.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	data, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	_, _ = z.Write(data) // a buffer takes everything
	_ = z.Close()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, &body)
	if err != nil {
		return err
	}
	req.Header = c.header.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case res.StatusCode < 200 || res.StatusCode > 299:
		return fmt.Errorf("the collector answers %s: %.300q", res.Status, answer)
	case err != nil:
		return fmt.Errorf("read the answer of the collector: %w", err)
	case res.Header.Get("Content-Type") != "application/x-protobuf":
		return nil
	}
	return refused(answer)
}

// refused returns what an answer (ExportTraceServiceResponse) says of spans that the collector has not
// taken: partial_success = 1 has rejected_spans = 1 and error_message = 2.
func refused(answer []byte) error {
	var spans uint64
	var text string
	eachField(answer, func(number protowire.Number, _ uint64, partial []byte) {
		if number != 1 {
			return
		}
		eachField(partial, func(number protowire.Number, n uint64, value []byte) {
			switch number {
			case 1:
				spans = n
			case 2:
				text = string(value)
			}
		})
	})
	if spans == 0 && text == "" {
		return nil
	}
	return fmt.Errorf("the collector has not taken %d spans: %.300q", spans, text)
}

// eachField calls fn with the fields of a message that are whole numbers or bytes, up to what is no
// message.
func eachField(data []byte, fn func(number protowire.Number, n uint64, value []byte)) {
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return
		}
		length := protowire.ConsumeFieldValue(number, kind, data[size:])
		if length < 0 {
			return
		}
		switch field := data[size : size+length]; kind {
		case protowire.VarintType:
			n, _ := protowire.ConsumeVarint(field)
			fn(number, n, nil)
		case protowire.BytesType:
			value, _ := protowire.ConsumeBytes(field)
			fn(number, 0, value)
		}
		data = data[size+length:]
	}
}
