// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/provider/emulate"
)

// emulatedJobs is what the emulator of jobs says when it begins to listen.
type emulatedJobs struct {
	emulated
	Secret string `json:"webhookSecret"`
}

func (a *app) emulateJobsCommand() *cobra.Command {
	cfg := emulate.JobsConfig{Mode: emulate.OK, After: 200 * time.Millisecond, Late: time.Minute}
	listen := "127.0.0.1:7431"
	cmd := &cobra.Command{
		Use:   "provider",
		Short: "Be a service that carries out jobs: they are submitted, polled, reported by webhooks and cancelled",
		Long: `Be a service that carries out jobs, until Ctrl-C. It has no model: the result of a job is its input. Its protocols are below these paths:

  /plain         {"model", "input", "callback"} to POST /v1/jobs;
                 GET and DELETE /v1/jobs/ID
  /replicate/v1  predictions of Replicate
  /fal           the queue of fal, and /.well-known/jwks.json
  /openai/v1     responses of OpenAI in the background, whose webhooks
                 go to --openai-webhook
  /books         what was asked of the service: submissions, polls and
                 webhooks of each job, and the most polls in a second

Webhooks are signed as the services do it: with ed25519 for fal, and by Standard Webhooks with --webhook-secret for the others. They go to this machine, to public addresses, and to those that ROUX_EGRESS_ALLOW opens. Without an answer of 2xx they are sent again.

--mode makes jobs, webhooks and polls go wrong:

  ok       nothing goes wrong
  lost     there is no webhook
  late     the webhook comes --late after the end of the job
  twice    the webhook comes twice, with the same delivery id
  reorder  the webhook comes before the submission is answered
  forged   a webhook with a wrong signature says that the job failed
  old      the only webhook has the time of an hour ago
  deaf     polls are answered 503 until the webhook was sent
  limit    the first poll is answered 429 with Retry-After
  garbage  the first poll is answered with HTML
  drop     the job is accepted, and the connection closed
  fail     the job fails
  preview  the job says what it has made so far, in answers and webhooks
           (plain and Replicate)
  cut      each stream of the job breaks after three pieces (OpenAI, as
           the next three)
  doubled  a stream that goes on begins with the last events once more
  stalled  nothing more comes after half of the text
  lagging  the stream says --late after the end of the job that it ended
  silent   the job never ends
  faults   a mode for each job, drawn with --seed: one of the first
           eleven

A model that is called emulate-MODE or OWNER/emulate-MODE has that mode. A job decides for itself with "emulate" in its input: {"result": any, "fail": "message", "after": "250ms", "mode": "late", "seconds": 12.5, "previews": [any]}, where seconds is how long it says it has taken, and each of previews is shown for an equal part of the time that it runs; for OpenAI this is a text in metadata.

At most 100,000 jobs are kept; those that ended first make room.`,
		Example: `roux emulate provider
roux emulate provider --listen 127.0.0.1:0 --after 30s --mode lost
roux emulate provider --mode faults --seed 7 --require-key secret
curl -s http://127.0.0.1:7431/plain/v1/jobs -d '{"model": "m", "input": {"text": "hello"}}'`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.emulateJobs(cmd.Context(), listen, cfg) },
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "address and port on loopback; port 0 is one that is free")
	cmd.Flags().StringVar(&cfg.Mode, "mode", cfg.Mode, "how jobs, webhooks and polls go wrong")
	completeFlag(cmd, "mode", emulate.JobModes)
	cmd.Flags().Uint64Var(&cfg.Seed, "seed", 0, "seed of the mode faults")
	cmd.Flags().DurationVar(&cfg.After, "after", cfg.After, "how long a job takes")
	cmd.Flags().DurationVar(&cfg.Late, "late", cfg.Late, "how long after its job a webhook comes in the mode late, and the end of its stream in lagging")
	cmd.Flags().StringVar(&cfg.Key, "require-key", "", "refuse requests that have another key (default: any is accepted)")
	cmd.Flags().BoolVar(&cfg.Idempotent, "idempotent", false, "the same Idempotency-Key gives the same job in all protocols (default: in /plain only)")
	cmd.Flags().StringVar(&cfg.Webhook, "openai-webhook", "", "URL that gets the webhooks of OpenAI (default: none)")
	cmd.Flags().StringVar(&cfg.Secret, "webhook-secret", "", "what signs webhooks, whsec_ and base64; the keys of fal follow from it (default: random)")
	return cmd
}

// loopback are the ranges of this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func (a *app) emulateJobs(ctx context.Context, listen string, cfg emulate.JobsConfig) error {
	if err := checkMode(cfg.Mode, emulate.JobModes()); err != nil {
		return err
	}
	if cfg.After <= 0 || cfg.Late <= 0 {
		return fault.New(fault.Usage, "--after and --late: want durations above 0, such as 250ms")
	}
	allow, err := egress.ParseAllow(settingOr(a.config.Get("egress.allow"), ""))
	if err != nil {
		return err
	}
	cfg.Allow = append(allow, loopback...)
	jobs, err := emulate.NewJobs(cfg)
	if err != nil {
		return fault.Wrap(fault.Usage, err, "%v", err)
	}
	defer jobs.Close()
	ln, err := listenOnLoopback(listen)
	if err != nil {
		return err
	}
	out := emulatedJobs{emulated{"http://" + ln.Addr().String(), cfg.Mode}, jobs.Secret()}
	a.show(out, func() {
		a.text("emulating jobs on %s, mode %s\n", out.URL, out.Mode)
		for _, path := range strings.Fields("/plain /replicate/v1 /fal /openai/v1 /books") {
			a.text("  %s%s\n", out.URL, path)
		}
		a.text("  webhooks are signed with %s\n", out.Secret)
	})
	return serveEmulator(ctx, ln, jobs.Handler())
}
