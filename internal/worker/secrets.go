// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/redact"
)

// A SecretSource has the secrets of accounts.
type SecretSource interface {
	// Secret returns the value of a secret. The error is fault.SecretNotFound when the
	// account has none of that name, and fault.SecretInvalid when it cannot be read. It is
	// called on the goroutine of the attempt and may read a file.
	Secret(ctx context.Context, account, name string) (string, error)
}

// The bounds of what is remembered to be removed.
const (
	maxKnownAccounts = 1_000
	maxKnownBytes    = redact.MaxTotal / 2 // of an account; an attempt may add as much again
)

// knownSecrets are the secrets that attempts of this process have used, by account. What
// any action of the account returns is searched for them, because a service may return to
// one step what it got from another (I18).
type knownSecrets struct {
	any atomic.Bool // there is one
	mu  sync.RWMutex
	of  map[string]*accountSecrets
}

type accountSecrets struct {
	values []string // the newest last
	set    *redact.Set
}

// has reports whether all of these values are among the secrets.
func (s *accountSecrets) has(values []string) bool {
	return s != nil && !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(s.values, v) })
}

// set returns what is removed from the texts of an attempt of an account. own is what learn
// returned to the attempt, nil if it uses no secret: its secrets are removed until it ends,
// also when they are forgotten meanwhile.
func (k *knownSecrets) set(account string, own *accountSecrets) *redact.Set {
	if !k.any.Load() {
		return nil
	}
	k.mu.RLock()
	s := k.of[account]
	k.mu.RUnlock()
	if own != nil && !s.has(own.values) {
		s = own
	}
	if s == nil {
		return nil
	}
	return s.set
}

// learn adds the secrets of an attempt. When there are too many, the oldest are forgotten. It
// returns the values with a set that removes them.
func (k *knownSecrets) learn(account string, values []string) (*accountSecrets, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.of[account]
	if s.has(values) {
		return &accountSecrets{values, s.set}, nil
	}
	var all []string
	if s != nil {
		all = slices.DeleteFunc(slices.Clone(s.values), func(v string) bool { return slices.Contains(values, v) })
	}
	for size(all) > maxKnownBytes {
		all = all[1:]
	}
	all = append(all, values...)
	set, err := redact.New(all...)
	if err != nil {
		return nil, err
	}
	if k.of == nil {
		k.of = map[string]*accountSecrets{}
	}
	if s == nil && len(k.of) >= maxKnownAccounts {
		for other := range k.of {
			delete(k.of, other) // any: its next attempt that uses a secret adds it again
			break
		}
	}
	k.of[account] = &accountSecrets{all, set}
	k.any.Store(true)
	return &accountSecrets{values, set}, nil
}

func size(values []string) (n int) {
	for _, v := range values {
		n += len(v)
	}
	return n
}

// known returns the secrets to be removed from what the action returns.
func (a *attempt) known() *redact.Set { return a.pool.known.set(a.task.Task.Account, a.secrets) }

// fillSecrets replaces the references to secrets in the input by their values. Only the
// parameters of a recipe have such references: an input from elsewhere cannot use their
// reserved name. It comes before files are read into the input, for the same reason.
func (a *attempt) fillSecrets() *fault.Error {
	t := &a.task
	if !jsonx.HasSecret(t.Task.Input) {
		return nil
	}
	found := map[string]string{}
	var values []string
	input, err := jsonx.FillSecrets(t.Task.Input, MaxLarge, func(name string) (string, error) {
		if v, ok := found[name]; ok {
			return v, nil
		}
		v, err := a.secret(name)
		if err != nil {
			return "", err
		}
		found[name] = v
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
		return v, nil
	})
	if err == nil && size(values) > redact.MaxTotal-maxKnownBytes {
		err = fault.New(fault.SecretInvalid, "the secrets of the step have more than %d bytes together", redact.MaxTotal-maxKnownBytes)
	}
	if err == nil {
		a.secrets, err = a.pool.known.learn(t.Task.Account, values)
	}
	if err != nil {
		return a.failed(err)
	}
	t.Task.Input = input
	return nil
}

// secret returns the value of a secret of the account.
func (a *attempt) secret(name string) (string, error) {
	if a.pool.cfg.Secrets == nil {
		return "", fault.New(fault.SecretNotFound, "the secret %q is not set: this process has no secrets", name)
	}
	v, err := a.pool.cfg.Secrets.Secret(a, a.task.Task.Account, name)
	var known *fault.Error
	if err != nil && !errors.As(err, &known) && a.Err() == nil {
		err = fault.Wrap(fault.SecretInvalid, err, "the secret %q cannot be read: %v", name, err)
	}
	if err != nil {
		return "", err
	}
	if why := redact.Check(v); why != nil {
		return "", fault.New(fault.SecretInvalid, "the value of the secret %q cannot be used: %v", name, why)
	}
	return v, nil
}

// A redactable error consists of more texts than its message.
type redactable interface {
	// Redacted returns the error with its texts changed.
	Redacted(change func(string) string) error
}

// redacted returns a failure without secrets. It keeps nothing of an error that it wraps
// but what is redactable.
func (a *attempt) redacted(f *fault.Error) *fault.Error {
	known := a.known()
	if known == nil {
		return f
	}
	out := &fault.Error{Code: f.Code, Msg: known.String(fault.Message(f)), Remedy: known.String(f.Remedy), RetryAfterMS: f.RetryAfterMS, OutcomeUnknown: f.OutcomeUnknown, Limit: f.Limit}
	if code := string(f.Code); known.String(code) != code {
		out.Code = fault.StepFailed
	}
	// Not errors.As, which would call methods of an error of the action.
	if inner, ok := f.Err.(redactable); ok {
		out.Err = inner.Redacted(known.String)
	}
	return out
}

// redactReport removes secrets from a report that is no delta.
func (a *attempt) redactReport(r *Report) {
	known := a.known()
	if known == nil {
		return
	}
	r.Text = known.String(r.Text)
	if r.Value != nil {
		r.Value = known.JSON(r.Value, outputLimits(r.Value))
	}
}

// guardedFiles are the files of an attempt, into which no secret is written: a file is a part
// of the run, as an output is.
type guardedFiles struct{ a *attempt }

// Open implements action.Files.
func (g guardedFiles) Open(ctx context.Context, hash string) (action.File, error) {
	return g.a.files.Open(ctx, hash)
}

// Put implements action.Files. Another attempt may have used the first secret of the account
// after this one began.
func (g guardedFiles) Put(ctx context.Context, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	known := g.a.known()
	return g.a.files.Put(ctx, known.Reader(r), known.String(name), mimeType)
}
