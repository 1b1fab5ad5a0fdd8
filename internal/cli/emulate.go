// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/provider/emulate"
	"github.com/roux-engine/roux/internal/view"
)

// trialCommands are for people who write recipes or receivers of webhooks. A small binary does not
// have them.
func (a *app) trialCommands() []*cobra.Command {
	return []*cobra.Command{a.listenCommand(), a.triggerWebhookCommand(), a.emulateCommand()}
}

func (a *app) emulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "emulate",
		Short:   "Be a service that recipes call, to try them out without one",
		Example: "roux emulate llm\nroux emulate provider",
		RunE:    group,
	}
	cmd.AddCommand(a.emulateModelsCommand(), a.emulateJobsCommand())
	return cmd
}

// An emulated is what an emulator says when it begins to listen.
type emulated struct {
	URL  string `json:"url"`
	Mode string `json:"mode"`
}

func (a *app) emulateModelsCommand() *cobra.Command {
	cfg := emulate.Config{Mode: emulate.OK}
	listen := "127.0.0.1:7430"
	cmd := &cobra.Command{
		Use:   "llm",
		Short: "Be a service with language models that answers with what it was asked",
		Long: "Be a service with language models, in the protocols of Anthropic (/v1/messages) and OpenAI (/v1/chat/completions), streaming or not, until Ctrl-C. " +
			"It has no model: an answer is what was asked, a translation has the language before it, and a schema gets a document that fits it. " +
			"--mode makes answers go wrong: " + strings.Join(emulate.Modes(), ", ") + "; a model that is called emulate- and a mode has that mode.",
		Example: `roux emulate llm
roux emulate llm --listen 127.0.0.1:7431 --mode rate-limit --times 2
roux emulate llm --answer '{"type": "text"}'
roux emulate llm --rate 50`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.emulateModels(cmd.Context(), listen, cfg) },
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "address and port on loopback; port 0 is one that is free")
	cmd.Flags().StringVar(&cfg.Mode, "mode", cfg.Mode, "how answers go wrong")
	completeFlag(cmd, "mode", emulate.Modes)
	cmd.Flags().Int64Var(&cfg.Times, "times", 0, "how many answers go wrong before all others are right (default: all)")
	cmd.Flags().StringVar(&cfg.Key, "require-key", "", "refuse requests that have another key (default: any is accepted)")
	cmd.Flags().StringVar(&cfg.Answer, "answer", "", "text of every answer (default: what was asked)")
	cmd.Flags().Float64Var(&cfg.Rate, "rate", 0, "how many words of a streamed answer are sent a second (default: all at once)")
	cmd.Flags().StringSliceVar(&cfg.Models, "models", nil, "models that there are (default: any)")
	return cmd
}

// maxRate is how fast the emulator streams at most, as far as that is asked for.
const maxRate = 10_000

func (a *app) emulateModels(ctx context.Context, listen string, cfg emulate.Config) error {
	if err := checkMode(cfg.Mode, emulate.Modes()); err != nil {
		return err
	}
	if !(cfg.Rate >= 0 && cfg.Rate <= maxRate) {
		return fault.New(fault.Usage, "--rate %v: want words a second, 0 to %d", cfg.Rate, maxRate)
	}
	ln, err := listenOnLoopback(listen)
	if err != nil {
		return err
	}
	out := emulated{"http://" + ln.Addr().String(), cfg.Mode}
	a.show(out, func() { a.text("emulating models on %s, mode %s\n", out.URL, out.Mode) })
	return serveEmulator(ctx, ln, emulate.New(cfg).Handler())
}

func checkMode(mode string, modes []string) error {
	if !slices.Contains(modes, mode) {
		return fault.New(fault.Usage, "--mode %q: want one of %s", view.OneLine(view.Cut(mode, 60)), strings.Join(modes, ", "))
	}
	return nil
}

func listenOnLoopback(listen string) (net.Listener, error) {
	if host, _, err := net.SplitHostPort(listen); err != nil || !slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, host) {
		return nil, fault.New(fault.Usage, "--listen %q: want an address on loopback and a port, such as 127.0.0.1:7430", listen)
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "--listen: %v", err)
	}
	return ln, nil
}

// serveEmulator serves until Ctrl-C.
func serveEmulator(ctx context.Context, ln net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	ctx, end := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer end()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
