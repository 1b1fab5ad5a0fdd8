// SPDX-License-Identifier: Apache-2.0

//go:build mutation

package mutation

import "os"

// Removable reports whether the environment can remove guards from this build.
const Removable = true

// Each removes the guard that Guards describes.
var (
	Fence         = without("fence")
	Duplicate     = without("duplicate")
	Generation    = without("generation")
	FanIn         = without("fanin")
	Terminal      = without("terminal")
	Cancel        = without("cancel")
	Timer         = without("timer")
	Window        = without("window")
	Dependents    = without("dependents")
	Reopen        = without("reopen")
	Rebind        = without("rebind")
	Losses        = without("losses")
	Charge        = without("charge")
	Reserve       = without("reserve")
	Settle        = without("settle")
	LotOrder      = without("lotorder")
	Expiry        = without("expiry")
	Pause         = without("pause")
	ChildEnd      = without("childend")
	ChildCancel   = without("childcancel")
	Slice         = without("slice")
	Group         = without("group")
	Pin           = without("pin")
	Inherit       = without("inherit")
	Isolate       = without("isolate")
	Depth         = without("depth")
	MergeOrder    = without("mergeorder")
	Cleanup       = without("cleanup")
	Foreign       = without("foreign")
	Feed          = without("feed")
	Admission     = without("admission")
	JobEnd        = without("jobend")
	JobCancel     = without("jobcancel")
	JobExpiry     = without("jobexpiry")
	EarlyDelivery = without("earlydelivery")
	JobSlot       = without("jobslot")
	KeySlot       = without("keyslot")
	Gate          = without("gate")
	Cache         = without("cache")
	Lease         = without("lease")
	Adopt         = without("adopt")
	Schedule      = without("schedule")
	Trigger       = without("trigger")
	CommitFirst   = without("commitfirst")
	Reload        = without("reload")
	EffectKey     = without("effectkey")
	HandBack      = without("handback")
	Fsync         = without("fsync")
)

func without(guard string) bool { return os.Getenv(Variable) == guard }
