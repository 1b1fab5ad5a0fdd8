// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// secretMap are secrets by account and name.
type secretMap map[string]string

func (m secretMap) Secret(_ context.Context, account, name string) (string, error) {
	if name == "broken" {
		return "", errors.New("the disk is broken")
	}
	if v, ok := m[account+"/"+name]; ok {
		return v, nil
	}
	return "", fault.New(fault.SecretNotFound, "the secret %q is not set", name)
}

const hush = `hu"sh-<token>`

var testSecrets = secretMap{"a/token": hush, "b/token": "another-value", "a/short": "abc", "a/big": strings.Repeat("0123456789", 800), "a/big2": strings.Repeat("abcdefghij", 801), "a/big3": "x" + strings.Repeat("abcdefghij", 700)}

// reference is a text with references to secrets in it, as Render makes it.
func reference(t *testing.T, parts ...jsonx.SecretPart) []byte {
	t.Helper()
	raw, err := jsonx.Canonical(map[string]any{"text": jsonx.Secret{Parts: parts}, "other": "secret('token')"})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// sealedTask returns a task of account a that gets "Bearer" and the token.
func sealedTask(t *testing.T, run action.Func) Task {
	task := Task{ID: ID{Run: "r"}, Action: &action.Action{Name: "x", Run: run}}
	task.Task.Run, task.Task.Step, task.Task.Account = "r", "s", "a"
	task.Task.Input = reference(t, jsonx.SecretPart{Text: "Bearer "}, jsonx.SecretPart{Name: "token"}, jsonx.SecretPart{Text: "!"})
	return task
}

// A world is a pool with secrets, and what it says.
type world struct {
	recorder
	t    *testing.T
	pool *Pool
}

func newWorld(t *testing.T, cfg Config) *world {
	w := &world{t: t}
	all := w.config()
	all.Secrets = cfg.Secrets
	w.pool = New(all)
	t.Cleanup(func() { w.pool.Stop(context.Background()) })
	return w
}

// do carries out a task, under an id of its own.
func (w *world) do(task Task) Result {
	w.t.Helper()
	task.ID.Attempt = uint32(len(w.results) + 1)
	return run(w.t, w.pool, &w.recorder, task)
}

func (w *world) said() []Report {
	_, reports := w.recorded()
	return reports
}

func (w *world) deltas() (text string) {
	for _, r := range w.said() {
		if r.Kind == Delta {
			text += r.Text
		}
	}
	return text
}

// TestI18_ActionGetsTheValue: the action gets the text with the value of its own account.
func TestI18_ActionGetsTheValue(t *testing.T) {
	for account, want := range map[string]string{"a": "Bearer " + hush + "!", "b": "Bearer another-value!"} {
		w := newWorld(t, Config{Secrets: testSecrets})
		task := sealedTask(t, func(_ context.Context, task *action.Task) (action.Result, error) {
			var in struct{ Text, Other string }
			if err := task.Decode(&in); err != nil {
				return action.Result{}, err
			}
			return action.Result{Output: in.Text == want && in.Other == "secret('token')"}, nil
		})
		task.Task.Account = account
		if res := w.do(task); res.Err != nil || string(res.Output) != "true" {
			t.Errorf("account %s: %s, %v", account, res.Output, res.Err)
		}
	}
}

// TestI18_WhatAnActionReturns: nothing that an attempt reports has the value.
func TestI18_WhatAnActionReturns(t *testing.T) {
	coded := fmt.Sprintf("%q %x", hush, hush)
	for name, run := range map[string]action.Func{
		"output": func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Output: map[string]any{hush: hush, "b": coded}}, nil
		},
		"error": func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, errors.New("no " + hush + coded)
		},
		"fault": func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, &fault.Error{Code: fault.Code(hush), Msg: hush, Remedy: hush, Err: errors.New(hush)}
		},
		"price": func(context.Context, *action.Task) (action.Result, error) { return action.Result{Price: hush}, nil },
		"panic": func(context.Context, *action.Task) (action.Result, error) { panic(hush) },
		"reports": func(_ context.Context, task *action.Task) (action.Result, error) {
			task.Report.Log("info", "log "+hush)
			task.Report.Progress(0.5, coded)
			task.Report.Preview([]any{hush})
			for i := range len(hush) {
				task.Report.Delta(hush[i : i+1])
			}
			task.Report.Delta(" end " + hush[:9])
			return action.Result{}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Secrets: testSecrets})
			task := sealedTask(t, run)
			task.CheckOutput = func(any) error { return nil }
			res := w.do(task)
			all := fmt.Sprintf("%s %v %#v %+v", res.Output, res.Err, res.Err, w.said()) + w.log.String()
			if res.Err != nil {
				all += fmt.Sprint(res.Err.Err, res.Err.Remedy, res.Err.Code)
			}
			for _, form := range []string{hush, coded[1 : len(hush)+1], fmt.Sprintf("%x", hush), hush[:9]} {
				if strings.Contains(all, form) {
					t.Errorf("%q is in %s", form, all)
				}
			}
			if !strings.Contains(all, "[redacted]") {
				t.Errorf("nothing was redacted: %s", all)
			}
			if name == "reports" && w.deltas() != "[redacted] end [redacted]" {
				t.Errorf("deltas: %q", w.deltas())
			}
		})
	}
}

// TestI18_Contracts: a contract sees the values, and what it says of them is redacted.
func TestI18_Contracts(t *testing.T) {
	for phase, code := range map[string]fault.Code{"input": fault.InputContractViolation, "output": fault.OutputContractViolation} {
		w := newWorld(t, Config{Secrets: testSecrets})
		task := sealedTask(t, func(_ context.Context, task *action.Task) (action.Result, error) {
			return action.Result{Output: task.Input}, nil
		})
		check := func(v any) error {
			return fmt.Errorf("%v does not fit", v.(map[string]any)["text"])
		}
		if phase == "input" {
			task.CheckInput = check
		} else {
			task.CheckOutput = check
		}
		res := w.do(task)
		if res.Err == nil || res.Err.Code != code || res.Err.Msg != "Bearer [redacted]! does not fit" {
			t.Errorf("%s: %v", phase, res.Err)
		}
	}
}

// TestI18_LaterAttempts: a step that uses no secret does not return the one of another step
// of its account. Another account may have the same text.
func TestI18_LaterAttempts(t *testing.T) {
	w := newWorld(t, Config{Secrets: testSecrets})
	again := func(context.Context, *action.Task) (action.Result, error) { return action.Result{Output: hush}, nil }
	plain := sealedTask(t, again)
	plain.Task.Input = []byte("{}")
	if res := w.do(plain); string(res.Output) != `"hu\"sh-<token>"` {
		t.Errorf("before its first use: %s", res.Output)
	}
	w.do(sealedTask(t, again))
	if res := w.do(plain); string(res.Output) != `"[redacted]"` {
		t.Errorf("after its first use: %s", res.Output)
	}
	plain.Task.Account = "b"
	if res := w.do(plain); string(res.Output) != `"hu\"sh-<token>"` {
		t.Errorf("another account: %s", res.Output)
	}
}

// putFiles keeps what was put.
type putFiles struct{ name, text *string }

func (putFiles) Open(context.Context, string) (action.File, error) { return nil, fault.FileNotFound }
func (p putFiles) Put(_ context.Context, r io.Reader, name, _ string) (action.FileInfo, error) {
	data, err := io.ReadAll(r)
	*p.name, *p.text = name, string(data)
	return action.FileInfo{Hash: "sha256_0", Size: int64(len(data))}, err
}

// TestI18_OwnSecretsOfALongAttempt: the secrets of an attempt are removed until it ends,
// whatever other attempts have used meanwhile.
func TestI18_OwnSecretsOfALongAttempt(t *testing.T) {
	for _, others := range []string{"of the account", "of other accounts"} {
		w := newWorld(t, Config{Secrets: testSecrets})
		task := sealedTask(t, func(_ context.Context, task *action.Task) (action.Result, error) {
			task.Report.Delta("before " + hush[:9])
			for i := 0; w.pool.known.set("a", nil).String(hush) != hush; i++ { // until it is forgotten
				account, value := "a", fmt.Sprintf("secret-%05000d", i)
				if others == "of other accounts" {
					account, value = fmt.Sprint("account", i), "s3cret"
				}
				if _, err := w.pool.known.learn(account, []string{value}); err != nil {
					return action.Result{}, err
				}
			}
			task.Report.Delta(hush[9:] + " after " + hush)
			return action.Result{Output: hush}, nil
		})
		if res := w.do(task); res.Err != nil || string(res.Output) != `"[redacted]"` {
			t.Errorf("%s: %s, %v", others, res.Output, res.Err)
		}
		if got := w.deltas(); strings.Contains(got, hush) || !strings.HasSuffix(got, " after [redacted]") {
			t.Errorf("%s: deltas %q", others, got)
		}
	}
}

// TestI18_Files: no secret is written to a file, also if its first use in the process is that
// of another attempt, after this one has begun.
func TestI18_Files(t *testing.T) {
	w := newWorld(t, Config{Secrets: testSecrets})
	var name, text string
	late := sealedTask(t, func(ctx context.Context, task *action.Task) (action.Result, error) {
		if _, err := w.pool.known.learn("a", []string{hush}); err != nil {
			return action.Result{}, err
		}
		_, err := task.Files.Put(ctx, strings.NewReader("x "+hush+" y"), hush+".txt", "text/plain")
		return action.Result{}, err
	})
	late.Task.Input, late.Task.Files = []byte("{}"), putFiles{&name, &text}
	if res := w.do(late); res.Err != nil || name != "[redacted].txt" || text != "x [redacted] y" {
		t.Errorf("while the secret was used for the first time: %q %q %v", name, text, res.Err)
	}
	name, text = "", ""
	task := sealedTask(t, func(ctx context.Context, task *action.Task) (action.Result, error) {
		_, err := task.Files.Put(ctx, strings.NewReader("x "+hush+" y"), hush+".txt", "text/plain")
		return action.Result{}, err
	})
	task.Task.Files = putFiles{&name, &text}
	if res := w.do(task); res.Err != nil || name != "[redacted].txt" || text != "x [redacted] y" {
		t.Errorf("%q %q %v", name, text, res.Err)
	}
}

func TestSecretsThatCannotBeUsed(t *testing.T) {
	for name, want := range map[string]struct {
		code fault.Code
		msg  string
	}{
		"nobody": {fault.SecretNotFound, `the secret "nobody" is not set`},
		"broken": {fault.SecretInvalid, `the secret "broken" cannot be read: the disk is broken`},
		"short":  {fault.SecretInvalid, `the value of the secret "short" cannot be used: it has 3 bytes; want at least 6, because a shorter one would be removed from every text that contains it by chance`},
	} {
		w := newWorld(t, Config{Secrets: testSecrets})
		called := false
		task := sealedTask(t, func(context.Context, *action.Task) (action.Result, error) { called = true; return action.Result{}, nil })
		task.Task.Input = reference(t, jsonx.SecretPart{Name: name})
		if res := w.do(task); res.Err == nil || res.Err.Code != want.code || res.Err.Msg != want.msg || called {
			t.Errorf("%s: %v, called: %v", name, res.Err, called)
		}
	}
	w := newWorld(t, Config{})
	task := sealedTask(t, func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil })
	if res := w.do(task); !errors.Is(res.Err, fault.SecretNotFound) {
		t.Errorf("without a source: %v", res.Err)
	}
	w = newWorld(t, Config{Secrets: testSecrets})
	task.Task.Input = reference(t, jsonx.SecretPart{Name: "big"}, jsonx.SecretPart{Name: "big3"}, jsonx.SecretPart{Name: "token"})
	if res := w.do(task); res.Err != nil {
		t.Errorf("secrets of 15,014 bytes: %v", res.Err)
	}
	task.Task.Input = reference(t, jsonx.SecretPart{Name: "big"}, jsonx.SecretPart{Name: "big2"}, jsonx.SecretPart{Name: "big3"})
	if res := w.do(task); !errors.Is(res.Err, fault.SecretInvalid) {
		t.Errorf("secrets of 23,011 bytes: %v", res.Err)
	}
}

// TestI15_KnownSecretsAreBounded: the secrets that are remembered do not grow with the
// attempts, and an attempt's own are always among them.
func TestI15_KnownSecretsAreBounded(t *testing.T) {
	var k knownSecrets
	for i := range 300 {
		v := fmt.Sprintf("secret-%0200d", i)
		own, err := k.learn("a", []string{v})
		if err != nil {
			t.Fatal(err)
		}
		if got := k.set("a", own).String(v); got != "[redacted]" {
			t.Fatalf("secret %d is not removed: %s", i, got)
		}
	}
	if n := size(k.of["a"].values); n > maxKnownBytes+500 {
		t.Errorf("%d bytes are remembered", n)
	}
	for i := range maxKnownAccounts + 10 {
		if _, err := k.learn(fmt.Sprint("account", i), []string{"s3cret"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.of) > maxKnownAccounts {
		t.Errorf("%d accounts are remembered", len(k.of))
	}
}

// I18: what names a job becomes part of the journal, so that an action whose job has a secret in it fails.
func TestI18_JobsThatActionsSubmit(t *testing.T) {
	for _, job := range []*action.Job{
		{Provider: "acme", ID: "1", Handle: []byte(`{"n":1}`)}, {Provider: "acme", ID: hush}, {Provider: "acme", ID: "1", Handle: fmt.Appendf(nil, "%q", hush)},
	} {
		w := newWorld(t, Config{Secrets: testSecrets})
		res := w.do(sealedTask(t, func(context.Context, *action.Task) (action.Result, error) { return action.Result{Job: job}, nil }))
		if hidden := job.ID == hush || len(job.Handle) > len(`{"n":1}`); hidden != (res.Job == nil) || hidden && res.Err.Code != fault.ProviderError {
			t.Errorf("%+v gives %+v", job, res)
		}
	}
}
