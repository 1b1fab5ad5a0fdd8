// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/hmac"
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

// listed is the answer of a list.
type listed[T any] struct {
	Link string `header:"Link"`
	Body Page[T]
}

// cursors signs cursors, so that nobody makes one that reads from elsewhere (A24).
type cursors struct{ key []byte }

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

// page fills the answer of a list. place is where the next page begins; "" = this is the
// last one.
func page[T any](s *Server, r *request, list, place string, data []T) *listed[T] {
	out := &listed[T]{Body: Page[T]{Data: data}}
	if out.Body.Data == nil {
		out.Body.Data = []T{}
	}
	if place == "" {
		return out
	}
	cursor := s.cursors.seal(list, place)
	u := *r.http.URL
	q := u.Query()
	q.Set("cursor", cursor)
	u.RawQuery = q.Encode()
	next := u.RequestURI()
	out.Body.NextCursor, out.Body.Next, out.Body.HasMore = cursor, next, true
	out.Link = "<" + next + `>; rel="next"`
	return out
}

// stamp is a time of the store as answers have it.
func stamp(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// stampOr is a time, or nil for none.
func stampOr(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	t := stamp(micros)
	return &t
}

// etag is the entity tag of a revision.
func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// revisionOf reads an If-Match; any is returned when there is none.
func revisionOf(ifMatch string, any uint64) (uint64, error) {
	if ifMatch == "" || ifMatch == "*" {
		return any, nil
	}
	n, err := strconv.ParseUint(strings.Trim(ifMatch, `"`), 10, 64)
	if err != nil {
		return 0, fault.New(fault.PreconditionFailed, "If-Match names no revision of the resource: want the ETag that it was read with")
	}
	return n, nil
}
