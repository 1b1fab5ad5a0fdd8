// SPDX-License-Identifier: Apache-2.0

//go:build small

package config

// zonesNote follows the message about a time zone that is not known: a small binary has no
// time zones of its own and takes those of the system.
const zonesNote = "; this binary uses the time zones of the system, which are in its package tzdata"
