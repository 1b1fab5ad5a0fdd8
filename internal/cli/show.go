// SPDX-License-Identifier: Apache-2.0

package cli

import "reflect"

// show writes the result of a command in the form that -o asks for: for people
// by people, for programs as v. A list is one value a line in jsonl. What v
// encodes to is a promise: its fields only grow.
func (a *app) show(v any, people func()) {
	switch a.output {
	case asTable:
		people()
	case asLines:
		if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
			for i := range list.Len() {
				a.encode(list.Index(i).Interface())
			}
			return
		}
		a.encode(v)
	default:
		a.encode(v)
	}
}
