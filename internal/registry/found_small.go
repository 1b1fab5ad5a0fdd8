// SPDX-License-Identifier: Apache-2.0

//go:build small

package registry

import "github.com/roux-engine/roux/internal/compile"

// finds is nothing: a small binary reads no lock file.
type finds struct{}

func (finds) note(Found, string) {}

func (finds) include(_, _ string, _ *compile.Text) {}
