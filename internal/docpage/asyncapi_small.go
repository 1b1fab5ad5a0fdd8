// SPDX-License-Identifier: Apache-2.0

//go:build small

package docpage

import "github.com/roux-engine/roux/fault"

// AsyncAPI refuses: only the full binary has the document.
func AsyncAPI(string) ([]byte, error) {
	return nil, fault.New(fault.NotFound, "this server was built with -tags small and has no AsyncAPI document: one of the full binary of this release has it")
}
