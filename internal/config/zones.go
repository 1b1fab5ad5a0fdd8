// SPDX-License-Identifier: Apache-2.0

//go:build !small

package config

import _ "time/tzdata" // for machines that have no time zones of their own

// zonesNote follows the message about a time zone that is not known.
const zonesNote = ""
