// SPDX-License-Identifier: Apache-2.0

//go:build small

package api

// bulkRoutes adds nothing: with a small binary many runs are cancelled, retried or deleted one by one, or on its
// command line.
func (s *Server) bulkRoutes() {}
