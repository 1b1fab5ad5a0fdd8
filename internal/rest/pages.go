// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A Page is the form of every list.
type Page[T any] struct {
	Data       []T    `json:"data"`
	NextCursor string `json:"nextCursor,omitempty" doc:"Pass it as cursor to get the next page."`
	Next       string `json:"next,omitempty" doc:"Path of the next page."`
	HasMore    bool   `json:"hasMore"`
}

// Paging are the parameters of every list.
type Paging struct {
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"How many a page has."`
	Cursor string `query:"cursor" maxLength:"400" doc:"nextCursor of the page before."`
}

// Listed is the answer of a list.
type Listed[T any] struct {
	Link string `header:"Link"`
	Body Page[T]
}

// cursors signs cursors, so that nobody makes one that reads from elsewhere (A24).
type cursors struct{ key []byte }

// NewCursorKey returns a key for [Config].
func NewCursorKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return key
}

// seal returns a cursor that continues a list of an account after a place.
func (c *cursors) seal(list, place string) string {
	return base64.RawURLEncoding.EncodeToString(append(c.sum(list, place), place...))
}

const sumBytes = 12

func (c *cursors) sum(list, place string) []byte {
	m := hmac.New(sha256.New, c.key)
	m.Write([]byte(strconv.Itoa(len(list)) + ":" + list + place))
	return m.Sum(nil)[:sumBytes]
}

// open returns the place of a cursor of the same list; "" for no cursor.
func (c *cursors) open(list, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(data) <= sumBytes || !hmac.Equal(data[:sumBytes], c.sum(list, string(data[sumBytes:]))) {
		e := fault.New(fault.RequestMalformed, "the cursor is not one of this list")
		e.Remedy = "Pass nextCursor of the page before as it is, with the same filters, or none to begin."
		return "", e
	}
	return string(data[sumBytes:]), nil
}

// Place returns the place of a cursor of a list, as [PageOf] was given it; "" for no cursor.
func (rt *Router) Place(list, cursor string) (string, error) { return rt.cursors.open(list, cursor) }

// PlaceNumber is Place for a list whose places are numbers.
func (rt *Router) PlaceNumber(list, cursor string) (uint64, error) {
	place, err := rt.Place(list, cursor)
	if err != nil || place == "" {
		return 0, err
	}
	n, err := strconv.ParseUint(place, 10, 63)
	if err != nil {
		return 0, fault.New(fault.RequestMalformed, "the cursor is not one of this list")
	}
	return n, nil
}

// PageOf fills the answer of a list. place is where the next page begins; "" = this is the
// last one.
func PageOf[T any](ctx context.Context, rt *Router, list, place string, data []T) *Listed[T] {
	out := &Listed[T]{Body: Page[T]{Data: data}}
	if out.Body.Data == nil {
		out.Body.Data = []T{}
	}
	if place == "" {
		return out
	}
	cursor := rt.cursors.seal(list, place)
	u := *From(ctx).HTTP.URL
	q := u.Query()
	q.Set("cursor", cursor)
	u.RawQuery = q.Encode()
	next := u.RequestURI()
	out.Body.NextCursor, out.Body.Next, out.Body.HasMore = cursor, next, true
	out.Link = "<" + next + `>; rel="next"`
	return out
}

// Stamp is a time of the store as answers have it.
func Stamp(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// StampOr is a time, or nil for none.
func StampOr(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	t := Stamp(micros)
	return &t
}

// ETag is the entity tag of a revision.
func ETag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// Revision reads an If-Match; any is returned when there is none.
func Revision(ifMatch string, any uint64) (uint64, error) {
	if ifMatch == "" || ifMatch == "*" {
		return any, nil
	}
	n, err := strconv.ParseUint(strings.Trim(ifMatch, `"`), 10, 64)
	if err != nil {
		return 0, fault.New(fault.PreconditionFailed, "If-Match names no revision of the resource: want the ETag that it was read with")
	}
	return n, nil
}
