// SPDX-License-Identifier: Apache-2.0

//go:build small

package worker

// A workspace is that of an attempt's run: the small roux has none.
type workspace struct{}

func (a *attempt) giveWorkspace() {}

func (*workspace) used() bool { return false }

func (*workspace) close() {}
