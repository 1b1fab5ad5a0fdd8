// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// The life of a link: at most as long as its request may be answered.
const (
	defaultLink = 7 * 24 * time.Hour
	maxLink     = 30 * 24 * time.Hour
	maxFor      = 100
)

// link is a link as it is stored. The token is not.
type link struct {
	Account string `json:"account"`
	Request string `json:"request"`
	Asked   int64  `json:"asked"` // of the request: one that asks again has other links
	For     string `json:"for"`
	By      string `json:"by,omitempty"` // id of the key that has made it
	Expires int64  `json:"expires"`      // UTC µs
	Used    int64  `json:"used,omitempty"`
}

// A Link is a link that was made.
type Link struct {
	Token   string
	Expires int64 // UTC µs
}

// errLink is the answer to every token that is none.
var errLink = fault.New(fault.NotFound, "the link is not valid")

// Link makes a link by which one person, who needs no key, can answer a request once. Whoever has
// the link can: the answer is given in the name that it is for.
func (m *Manager) Link(ctx context.Context, who *Person, id, name string, life time.Duration) (*Link, error) {
	s, err := m.read(ctx, who.Account, id)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.TrimSpace(name) == "" || len(name) > maxFor || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }):
		return nil, invalid("for: want the name of who is to answer, at most %d bytes", maxFor)
	case name == ByDefault:
		return nil, invalid("for: %q is the name of what applies at the time-out", name)
	case life < 0 || life > maxLink:
		return nil, invalid("expiresIn: want at most %s", days(maxLink))
	case !who.may(s.Approvers):
		return nil, fault.New(fault.Forbidden, "%q is for others to answer, and so are its links", s.Title)
	case !named(s.Approvers, name):
		return nil, fault.New(fault.Forbidden, "%q is not one of the approvers of %q: %s", name, s.Title, strings.Join(s.Approvers, ", "))
	}
	if err := m.open(ctx, s); err != nil {
		return nil, err
	}
	if life == 0 {
		life = defaultLink
	}
	l := link{Account: who.Account, Request: id, Asked: s.Asked, For: name, By: who.Key, Expires: m.now() + life.Microseconds()}
	if s.Due > 0 {
		l.Expires = min(l.Expires, s.Due)
	}
	key, err := m.host.Key(ctx)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	if _, err := m.cfg.Put(ctx, change(recordLink, "", linkID(nonce), 0, l.Expires+keptEnded.Microseconds(), &l)); err != nil {
		return nil, err
	}
	return &Link{base64.RawURLEncoding.EncodeToString(append(nonce, l.mac(key, nonce)...)), l.Expires}, nil
}

// named reports whether approvers, as far as they are named, have a name.
func named(approvers []string, name string) bool {
	names := slices.DeleteFunc(slices.Clone(approvers), func(a string) bool { return strings.HasPrefix(a, rolePrefix) })
	return len(names) == 0 || slices.Contains(names, name)
}

// linkID is the id of the record of a link. It does not give the token away.
func linkID(nonce []byte) string {
	sum := sha256.Sum256(nonce)
	return hex.EncodeToString(sum[:16])
}

// mac proves that a link is for a request, until a time, for a person.
func (l *link) mac(key, nonce []byte) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(h, "approval link\n%x\n%q\n%q\n%d\n%d\n%q", nonce, l.Account, l.Request, l.Asked, l.Expires, l.For) // never fails
	return h.Sum(nil)[:16]
}

// find returns the link of a token. Whatever is wrong with one, the answer is the same and takes
// the same work.
func (m *Manager) find(ctx context.Context, token string) (l *link, revision uint64, id string, err error) {
	key, err := m.host.Key(ctx)
	if err != nil {
		return nil, 0, "", err
	}
	raw, _ := base64.RawURLEncoding.DecodeString(token)
	whole := len(raw) == 32
	if !whole {
		raw = make([]byte, 32)
	}
	nonce, mac := raw[:16], raw[16:]
	id, l = linkID(nonce), new(link)
	r, err := m.cfg.Records.Record(ctx, store.RecordKey{Kind: recordLink, ID: id})
	if err != nil && !errors.Is(err, fault.RecordNotFound) {
		return nil, 0, "", err
	}
	if err == nil {
		if l, err = store.DecodeRecord[link](&r); err != nil {
			return nil, 0, "", err
		}
	}
	if !hmac.Equal(mac, l.mac(key, nonce)) || !whole || l.Request == "" {
		return nil, 0, "", errLink
	}
	return l, r.Revision, id, nil
}

// Linked is the request of a link as the person sees it that the link is for.
type Linked struct {
	*Info
	For     string
	Expires int64
}

// Open returns the request of a link. It changes nothing, however often it is called.
func (m *Manager) Open(ctx context.Context, token string) (*Linked, error) {
	l, _, _, err := m.find(ctx, token)
	if err != nil {
		return nil, err
	}
	s, err := m.linked(ctx, l)
	if err != nil {
		return nil, err
	}
	info, err := m.info(ctx, l.person(), s)
	return &Linked{info, l.For, l.Expires}, err
}

// linked returns the request of a link that can still be answered by it.
func (m *Manager) linked(ctx context.Context, l *link) (*stored, error) {
	s, err := m.read(ctx, l.Account, l.Request)
	switch {
	case err != nil:
		return nil, err
	case s.Asked != l.Asked:
		return nil, fault.New(fault.TooLate, "%q is asked again since the link was made: it needs another link", s.Title)
	}
	if err := m.open(ctx, s); err != nil {
		return nil, err
	}
	switch {
	case l.Used != 0:
		return nil, fault.New(fault.Conflict, "the link was used at %s", stamp(l.Used))
	case m.now() >= l.Expires:
		return nil, fault.New(fault.TooLate, "the link was valid until %s", stamp(l.Expires))
	}
	return s, nil
}

func (l *link) person() *Person {
	// Who has made the link was one of the approvers.
	return &Person{Account: l.Account, Name: l.For, Key: l.By, Trusted: true}
}

// AnswerByLink answers the request of a link, in the name that the link is for, once.
func (m *Manager) AnswerByLink(ctx context.Context, token string, a *Answer) (*Outcome, error) {
	l, revision, id, err := m.find(ctx, token)
	if err != nil {
		return nil, err
	}
	if _, err := m.linked(ctx, l); err != nil {
		return nil, err
	}
	used := *l
	used.Used = m.now()
	given, who := *a, l.person()
	given.By, given.Key, given.Link = who.Name, who.Key, true
	return m.answer(ctx, who, l.Request, &given, change(recordLink, "", id, revision, l.Expires+keptEnded.Microseconds(), &used))
}
