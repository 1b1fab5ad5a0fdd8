// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"strconv"
	"time"
)

// A page is a part of a list.
type page[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"nextCursor"`
	HasMore    bool   `json:"hasMore"`
}

// list returns the elements of a list, page by page. After an error it ends.
func list[T any](ctx context.Context, c *Client, cl func() *call) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			var p page[T]
			if _, err := c.do(ctx, cl().with("cursor", cursor), &p); err != nil {
				var none T
				yield(none, err)
				return
			}
			for i := range p.Data {
				if !yield(p.Data[i], nil) {
					return
				}
			}
			if !p.HasMore || p.NextCursor == "" {
				return
			}
			cursor = p.NextCursor
		}
	}
}

// Collect returns up to limit elements of a list, all of them when limit is 0.
func Collect[T any](seq iter.Seq2[T, error], limit int) ([]T, error) {
	var all []T
	for v, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, v)
		if len(all) == limit {
			break
		}
	}
	return all, nil
}

// number is a parameter; "" for 0.
func number[T ~int | ~int64 | ~uint64](n T) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

// stamp is a time as a parameter; "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
