// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// kindAnswer is the kind of the records of kept answers.
	kindAnswer = "answer"
	// keptAnswer is how long an answer is kept (I13).
	keptAnswer = 24 * time.Hour
	// maxAnswer bounds a kept answer. A larger one is sent and not kept.
	maxAnswer = 1 << 20
)

// answers recognise repeated requests by their Idempotency-Key (I13). The first request
// with a key is carried out, and its answer is kept; others with the key get that answer.
// An operation that was carried out right before a crash may be carried out again: only
// operations on runs record the key in the commit of their effect.
type answers struct {
	mu       *sync.Mutex
	inFlight map[string]bool
}

func newAnswers() answers { return answers{new(sync.Mutex), map[string]bool{}} }

// An answer is a kept answer.
type answer struct {
	Body   string            `json:"request"` // hash of the body of the request
	Status int               `json:"status"`
	Header map[string]string `json:"header"`
	Data   []byte            `json:"data"`
}

// once carries out a request with an idempotency key, or repeats the answer to the first
// one.
func (a *answers) once(ctx context.Context, rt *Router, h huma.Context, next func(huma.Context)) {
	r := From(ctx)
	sum := sha256.Sum256([]byte(strconv.Itoa(len(r.Operation)) + r.Operation + strconv.Itoa(len(r.Path)) + r.Path + r.Key))
	key := store.RecordKey{Account: access.From(ctx).Account, Kind: kindAnswer, ID: hex.EncodeToString(sum[:])}
	name := key.Account + "/" + key.ID
	a.mu.Lock()
	busy := a.inFlight[name]
	a.inFlight[name] = true
	a.mu.Unlock()
	if busy {
		rt.fail(ctx, h, &fault.Error{Code: fault.RequestInFlight, Msg: "a request with that idempotency key is being carried out", RetryAfterMS: 1000})
		return
	}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.inFlight, name)
	}()
	body, err := io.ReadAll(http.MaxBytesReader(r.Writer, r.HTTP.Body, MaxText))
	if err != nil {
		tooLarge := fault.Wrap(fault.RequestTooLarge, err, "the body is larger than %d bytes, or did not arrive", MaxText)
		rt.fail(ctx, h, rt.Late(ctx, tooLarge))
		return
	}
	hash := hashOf(body)
	kept, err := a.load(ctx, rt, key)
	switch {
	case err != nil:
		rt.fail(ctx, h, err)
		return
	case kept != nil && kept.Body != hash:
		rt.fail(ctx, h, fault.New(fault.IdempotencyMismatch, "the idempotency key was used with another request"))
		return
	case kept != nil:
		for name, value := range kept.Header {
			h.SetHeader(name, value)
		}
		h.SetHeader("Idempotent-Replayed", "true")
		h.SetStatus(kept.Status)
		_, _ = h.BodyWriter().Write(kept.Data) // an error means that the client has gone
		return
	}
	c := &captured{under: huma.WithContext(h, ctx), body: bytes.NewReader(body), header: map[string]string{}}
	next(c)
	a.keep(ctx, rt, key, hash, c)
	c.send(h)
}

func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

func (a *answers) load(ctx context.Context, rt *Router, key store.RecordKey) (*answer, error) {
	rec, err := rt.cfg.Records.Record(ctx, key)
	switch {
	case fault.CodeOf(err) == fault.RecordNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case rec.Until != 0 && rec.Until < rt.cfg.Now().UnixMicro():
		return nil, nil
	}
	kept := new(answer)
	if err := json.Unmarshal(rec.Data, kept); err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "a kept answer cannot be read")
	}
	return kept, nil
}

// keep stores an answer, before it is sent. Failures that another try may not meet are not
// kept.
func (a *answers) keep(ctx context.Context, rt *Router, key store.RecordKey, hash string, c *captured) {
	if c.status >= http.StatusInternalServerError || c.status == http.StatusTooManyRequests || c.out.Len() > maxAnswer {
		return
	}
	data, err := json.Marshal(answer{hash, c.status, c.header, c.out.Bytes()})
	if err == nil {
		now := rt.cfg.Now()
		_, err = rt.cfg.Records.PutRecords(context.WithoutCancel(ctx), store.RecordChange{Record: store.Record{
			RecordKey: key, Revision: store.AnyRevision, Until: now.Add(keptAnswer).UnixMicro(), Data: data,
		}})
	}
	if err != nil {
		rt.cfg.Logger.WarnContext(ctx, "the answer to a request could not be kept", "request", From(ctx).ID, "error", err)
	}
}

// under is the context of the library, under a name that its method Context does not have.
type under huma.Context

// captured is a request whose body has been read, and whose answer is held back.
type captured struct {
	under
	body   io.Reader
	status int
	header map[string]string
	out    bytes.Buffer
}

func (c *captured) BodyReader() io.Reader           { return c.body }
func (c *captured) SetStatus(code int)              { c.status = code }
func (c *captured) Status() int                     { return c.status }
func (c *captured) SetHeader(name, value string)    { c.header[name] = value }
func (c *captured) AppendHeader(name, value string) { c.header[name] = value }
func (c *captured) BodyWriter() io.Writer           { return &c.out }

// Unwrap returns the context of the library, which other middleware looks for.
func (c *captured) Unwrap() huma.Context { return c.under }

func (c *captured) send(h huma.Context) {
	for name, value := range c.header {
		h.SetHeader(name, value)
	}
	h.SetStatus(c.status)
	_, _ = h.BodyWriter().Write(c.out.Bytes()) // an error means that the client has gone
}
