// SPDX-License-Identifier: Apache-2.0

//go:build small

package cli

import (
	"context"

	"github.com/roux-engine/roux/internal/service"
)

// A small binary has no `roux dev`.
type devFolder struct{}

func (s *serve) openFolder(context.Context, *service.Service, *served) (*devFolder, error) {
	return nil, nil
}

func (d *devFolder) follow(context.Context) {}
