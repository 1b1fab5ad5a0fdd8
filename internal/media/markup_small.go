// SPDX-License-Identifier: Apache-2.0

//go:build small

package media

import "github.com/roux-engine/roux/fault"

// errSmall is the error of what a small binary leaves out.
var errSmall = fault.New(fault.NotAvailable, "this binary was built with -tags small and converts no HTML or Markdown: use the full one")

func toMarkdown([]byte, request) ([]byte, error) { return nil, errSmall }

func toHTML([]byte, *markup) ([]byte, error) { return nil, errSmall }
