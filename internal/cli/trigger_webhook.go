// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/view"
)

// A fakeWebhook is a webhook that the user sends in place of a service.
type fakeWebhook struct {
	provider  string
	body      string
	id        string
	duplicate bool
	forged    bool
	late      time.Duration
}

// A fakeAnswer is how the server answers one.
type fakeAnswer struct {
	ID     string `json:"id"`
	Status int    `json:"status"`
	Body   string `json:"body,omitempty"`
}

func (a *app) triggerWebhookCommand() *cobra.Command {
	var w fakeWebhook
	cmd := &cobra.Command{
		Use:   "trigger-webhook PROVIDER",
		Short: "Send a server the webhook of a service that carries out jobs, signed as the service would",
		Long: "Send a server a webhook as the service PROVIDER would send it about one of its jobs, to see what becomes of it. The configuration here needs the provider and the variable with its secret. " +
			"--bad-signature and --late send what the server must refuse; --duplicate sends it twice, as services do.",
		Example: `roux trigger-webhook farm --body '{"id": "job_1", "status": "done", "result": {"pages": 3}}'
roux trigger-webhook farm --body @delivery.json --duplicate
roux trigger-webhook farm --body @delivery.json --bad-signature`,
		Args: wants(1, 1, "PROVIDER --body TEXT|@FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.provider = args[0]
			return a.triggerWebhook(cmd.Context(), &w)
		},
	}
	cmd.Flags().StringVar(&w.body, "body", "", "what the service says, as JSON, or @ and a file with it")
	cmd.Flags().StringVar(&w.id, "id", "", "id of the delivery (default: a new one)")
	cmd.Flags().BoolVar(&w.duplicate, "duplicate", false, "send it twice")
	cmd.Flags().BoolVar(&w.forged, "bad-signature", false, "change the body after it was signed")
	cmd.Flags().DurationVar(&w.late, "late", 0, "sign it as if so long ago; more than 5m is too old")
	return cmd
}

func (a *app) triggerWebhook(ctx context.Context, w *fakeWebhook) error {
	if a.target == nil || a.target.URL.Value == "" {
		return fault.New(fault.Usage, "name the server with --server or ROUX_SERVER, such as http://127.0.0.1:7420")
	}
	raw, err := a.jsonFlag("body", w.body)
	if err != nil {
		return err
	}
	body := []byte(raw)
	if len(body) == 0 {
		return fault.New(fault.Usage, "--body is missing: what the service says of the job, as JSON")
	}
	at := a.now()
	if w.id == "" {
		w.id = fmt.Sprintf("msg_%d", at.UnixNano())
	}
	header, err := a.built.SignWebhook(w.provider, body, w.id, at.Add(-w.late))
	if err != nil {
		return err
	}
	if w.forged {
		body = append(body, ' ')
	}
	times := 1
	if w.duplicate {
		times = 2
	}
	out := toAnywhere()
	defer out.Close()
	answers, refused := []fakeAnswer{}, false
	for range times {
		answer, err := a.sendWebhook(ctx, out, w, header, body)
		if err != nil {
			return err
		}
		answers = append(answers, *answer)
		refused = refused || answer.Status >= http.StatusBadRequest
	}
	a.show(answers, func() {
		for _, one := range answers {
			a.text("%s: %d %s\n", one.ID, one.Status, view.OneLine(view.Cut(one.Body, 300)))
		}
	})
	if refused {
		return exit(fault.ExitFailed)
	}
	return nil
}

// sendWebhook sends a webhook to the server.
func (a *app) sendWebhook(ctx context.Context, out *egress.Client, w *fakeWebhook, header http.Header, body []byte) (*fakeAnswer, error) {
	to := strings.TrimSuffix(a.target.URL.Value, "/") + "/v1/providers/" + w.provider + "/webhook"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Usage, "the address of the server cannot be used")
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	res, err := out.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	return &fakeAnswer{ID: w.id, Status: res.StatusCode, Body: string(text)}, err
}
