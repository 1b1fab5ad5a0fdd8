// SPDX-License-Identifier: Apache-2.0

//go:build small

package triggers

import "github.com/roux-engine/roux/internal/rest"

// registerChanges registers nothing: triggers are tried, and get another secret, on a server with the
// full binary.
func (*inboundServer) registerChanges(rest.Policy) {}
