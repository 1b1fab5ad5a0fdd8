// SPDX-License-Identifier: Apache-2.0

//go:build small

package dependencies

import (
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
)

func register(*rest.Router, *registry.Recipes) {}
