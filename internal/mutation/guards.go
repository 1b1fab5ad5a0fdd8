// SPDX-License-Identifier: Apache-2.0

//go:build !mutation

package mutation

// Removable reports whether the environment can remove guards from this build.
const Removable = false

// Each removes the guard that Guards describes.
const (
	Fence         = false
	Duplicate     = false
	Generation    = false
	FanIn         = false
	Terminal      = false
	Cancel        = false
	Timer         = false
	Window        = false
	Dependents    = false
	Reopen        = false
	Rebind        = false
	Losses        = false
	Charge        = false
	Reserve       = false
	Settle        = false
	LotOrder      = false
	Expiry        = false
	Pause         = false
	ChildEnd      = false
	ChildCancel   = false
	Slice         = false
	Group         = false
	Pin           = false
	Inherit       = false
	Isolate       = false
	Depth         = false
	MergeOrder    = false
	Cleanup       = false
	Foreign       = false
	Feed          = false
	Admission     = false
	JobEnd        = false
	JobCancel     = false
	JobExpiry     = false
	EarlyDelivery = false
	JobSlot       = false
	KeySlot       = false
	Gate          = false
	Cache         = false
	Lease         = false
	Adopt         = false
	Schedule      = false
	Trigger       = false
	CommitFirst   = false
	Reload        = false
	EffectKey     = false
	HandBack      = false
	Fsync         = false
)
