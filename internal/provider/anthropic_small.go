// SPDX-License-Identifier: Apache-2.0

//go:build small

package provider

import "github.com/roux-engine/roux/fault"

// newAnthropic refuses: the library for this protocol is too large for a small binary.
func newAnthropic(c *caller) (Streamer, error) {
	return nil, fault.New(fault.ProviderNotConfigured, "this small binary has no adapter for the kind %s of providers.%s: use the full binary, or a service that speaks the protocol of OpenAI. Nothing was sent and nothing charged", Anthropic, c.name)
}
