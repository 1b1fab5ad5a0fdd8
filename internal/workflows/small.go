// SPDX-License-Identifier: Apache-2.0

//go:build small

package workflows

import "github.com/roux-engine/roux/internal/rest"

func register(*rest.Router, Config, []string) {}
