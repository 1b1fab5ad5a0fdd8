// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"regexp"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// timeParts are the methods of a timestamp that accept a time zone.
var timeParts = map[string]bool{
	"getFullYear": true, "getMonth": true, "getDayOfYear": true, "getDayOfMonth": true, "getDate": true,
	"getDayOfWeek": true, "getHours": true, "getMinutes": true, "getSeconds": true, "getMilliseconds": true,
}

var offset = regexp.MustCompile(`^(|UTC|[+-]?\d\d:\d\d)$`)

// timePart returns the implementation of such a method, which accepts only UTC or an
// offset. A named zone would be looked up on the disk of the machine, whose data may
// change, and a replay must have the same result.
func timePart(function string) implementation {
	return implementation{
		cost: func([]ref.Val) uint64 { return 1 },
		run: func(a []ref.Val) ref.Val {
			t, ok := a[0].(traits.Receiver)
			zone, ok2 := a[1].(types.String)
			if !ok || !ok2 {
				return noOverload()
			}
			if !offset.MatchString(string(zone)) {
				return types.NewErr("%s: time zone %q: want \"UTC\" or an offset such as \"+02:00\"", function, string(zone))
			}
			return t.Receive(function, "", a[1:])
		},
	}
}
