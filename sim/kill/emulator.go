// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"syscall"
	"time"
)

// The keys of the provider of jobs, and the secret that signs its webhooks.
const (
	providerKey   = "provider-key"
	webhookSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	jobPrice      = "0.5" // credits
)

// An emulator is `roux emulate provider`, which has books of its own. It is never killed.
type emulator struct {
	cmd *exec.Cmd
	url string
}

func (b *bench) startEmulator(dir string, args ...string) (*emulator, error) {
	return b.startEmulatorOf("provider", dir, append([]string{"--webhook-secret", webhookSecret}, args...)...)
}

// startEmulatorOf starts `roux emulate` of a kind.
func (b *bench) startEmulatorOf(kind, dir string, args ...string) (*emulator, error) {
	e := &emulator{cmd: exec.Command(b.plainBinary, append([]string{"emulate", kind, "--listen", "127.0.0.1:0", "--require-key", providerKey, "-o", "json"}, args...)...)}
	e.cmd.Env, e.cmd.Dir = []string{"HOME=" + dir, "ROUX_DATA=" + dir}, dir
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	var says struct{ URL string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&says); err != nil || says.URL == "" {
		return nil, errors.Join(fmt.Errorf("the emulator did not say where it listens: %w", err), e.stop())
	}
	e.url = says.URL
	return e, nil
}

func (e *emulator) stop() error {
	_ = e.cmd.Process.Signal(syscall.SIGKILL)
	var exit *exec.ExitError
	if err := e.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// providers is the table of the configuration with the provider. It has that many slots.
func (e *emulator) providers(slots int) string {
	return fmt.Sprintf(`ROUX_PROVIDERS={"farm":{"kind":"jobs","url":"%s/plain","key_env":"ROUX_PROVIDER_FARM","model":"draft","slots":%d,"prices":{"draft":{"job":%s}},
"api":{"submit":{"path":"/v1/jobs","body":{"model":"{{ model }}","input":"{{ input }}","callback":"{{ webhook }}"},"job":"body.id"},"poll":{"path":"/v1/jobs/{{ job }}"},
"cancel":{"method":"DELETE","path":"/v1/jobs/{{ job }}"},"state":"body.status","succeeded":["done"],"failed":["failed","cancelled"],"output":"body.result","error":"body.error.message",
"webhook":{"job":"body.id","whole":true,"signature":"standard","secret_env":"ROUX_WEBHOOK_FARM"}}}}`, e.url, slots, jobPrice)
}

// env is what a server needs to use the provider, which reaches it at a URL.
func (e *emulator) env(slots int, public string) []string {
	return []string{e.providers(slots), "ROUX_PROVIDER_FARM=" + providerKey, "ROUX_WEBHOOK_FARM=" + webhookSecret, "ROUX_PUBLIC_URL=" + public}
}

// A books is what the emulator was asked, and what it charges.
type books struct {
	Jobs []struct {
		ID, State string
		Key       string `json:"idempotencyKey"`
		Mode      string
		Submitted int
	}
}

func (e *emulator) books(ctx context.Context) (*books, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/books", nil)
	if err != nil {
		return nil, err
	}
	res, err := newWebClient().Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	b := new(books)
	return b, json.NewDecoder(res.Body).Decode(b)
}

// check compares the books with how many steps have completed by the journals: each has one job
// that is charged, and there is no other.
func (b *books) check(completed int, bad func(string, ...any)) (charged, repeated int) {
	keys := map[string]int{}
	for _, j := range b.Jobs {
		if j.Key == "" {
			bad("job %s has no idempotency key (I4)", j.ID)
		}
		if repeated += j.Submitted - 1; j.State == "done" {
			keys[j.Key]++
			charged++
		}
	}
	for key, n := range keys {
		if n > 1 {
			bad("the provider charges %d jobs with the key %s", n, key)
		}
	}
	if charged != completed {
		bad("the provider charges %d jobs, and %d steps have completed with one", charged, completed)
	}
	return charged, repeated
}
