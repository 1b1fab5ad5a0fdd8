// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/roux-engine/roux/fault"
)

// explain converts a transport error into a *fault.Error. Its message does not use the
// library's text, because that quotes URLs and what the server sent.
func explain(req *http.Request, err error) error {
	if ctx := req.Context(); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var f *fault.Error
	if errors.As(err, &f) {
		if f.Code == fault.EgressRefused {
			return fault.Wrap(f.Code, err, "%s: %s", Show(req.URL), f.Msg)
		}
		return f
	}
	return fault.Wrap(fault.ServiceUnavailable, loggable(err), "%s: %s", Show(req.URL), Reason(err))
}

// loggable returns the part of an error that may be logged because it cannot contain
// what was sent.
func loggable(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	return nil
}

// Reason describes why an exchange failed, without quoting the error's text.
func Reason(err error) string {
	var (
		dns       *net.DNSError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		timeout   net.Error
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "there is no such host"
	case errors.As(err, &dns):
		return "the name could not be looked up"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused; nothing listens there"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no route to that address"
	case errors.As(err, &authority):
		return "its certificate is signed by an authority that this machine does not trust"
	case errors.As(err, &name):
		return "its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &invalid):
		return "its certificate is not valid"
	case errors.As(err, &record):
		return "it does not speak TLS"
	case errors.As(err, &alert):
		return "it refused the TLS handshake; TLS 1.2 or newer is needed"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "there was no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before the answer was complete"
	case strings.Contains(err.Error(), "response headers exceeded"), strings.Contains(err.Error(), "too many 1xx"):
		return "the headers of its answer exceed 64 KiB"
	case strings.Contains(err.Error(), "tls: "):
		return "it refused the TLS handshake; TLS 1.2 or newer is needed"
	case strings.Contains(err.Error(), "malformed"), strings.Contains(err.Error(), "HTTP/1.x transport connection broken"):
		return "its answer is not HTTP"
	}
	return "the exchange broke off"
}
