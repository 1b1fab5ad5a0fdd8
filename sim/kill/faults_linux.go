// SPDX-License-Identifier: Apache-2.0

package main

import "context"

func (b *bench) everyFault(context.Context) (problems []string, done int, skipped []string, err error) {
	return nil, 0, nil, nil
}
