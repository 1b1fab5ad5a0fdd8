// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/webhook"
)

// forwardTime is how long a receiver may take, as for a webhook.
const forwardTime = 15 * time.Second

// listen is a command that receives the messages of a webhook on this machine.
type listen struct {
	*app
	spec       hookSpec
	forward    string
	secretFile string
	limit      int

	made *webhook.Listener
	out  *stream
	send func(*http.Request) (*http.Response, error)
}

func (a *app) listenCommand() *cobra.Command {
	l := &listen{app: a}
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive the events of an account on this machine, as a webhook would send them",
		Long: "Receive the events of an account on this machine until Ctrl-C, while you write the program that a webhook will call. Each message is printed and, with --forward, " +
			"sent to a URL as a webhook would send it, with the same headers and signatures. No webhook is made, and the server need not reach this machine: the command follows the feed of the account. " +
			"Messages begin with what happens from now on, come in the order of the feed, and are sent once: what the receiver refuses is shown and not sent again.",
		Example: `roux listen
roux listen --forward http://127.0.0.1:8000/roux
roux listen --events 'run.failed,credits.*' --payload full -o jsonl`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	}
	cmd.Flags().StringVar(&l.forward, "forward", "", "URL of a program on this machine or elsewhere that messages are sent to")
	cmd.Flags().StringSliceVar(&l.spec.events, "events", []string{"*"}, "types of events, or beginnings with * (repeatable)")
	cmd.Flags().StringSliceVar(&l.spec.recipes, "recipe", nil, "only runs of this recipe (repeatable)")
	cmd.Flags().BoolVar(&l.spec.children, "children", false, "also child runs")
	l.spec.payload = webhook.Thin
	cmd.Flags().Var(choice{&l.spec.payload, payloadWords()}, "payload", "what a message has: thin = ids, full = also the change and the run")
	cmd.Flags().StringVar(&l.secretFile, "secret-file", "", "file with the secret that signs; where there is none, a new secret is kept in it (default: a new secret, which is printed)")
	cmd.Flags().IntVar(&l.limit, "limit", 0, "end after this many messages (default: at Ctrl-C)")
	return cmd
}

// toAnywhere returns a client that reaches every address: the user names the receiver, which is on
// this machine as a rule.
func toAnywhere() *egress.Client {
	return egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
}

func (l *listen) run(cmd *cobra.Command) error {
	if l.limit < 0 || cmd.Flags().Changed("limit") && l.limit == 0 {
		return fault.New(fault.Usage, "--limit %d: want at least 1", l.limit)
	}
	if l.forward != "" {
		if _, err := egress.ParseURL(l.forward); err != nil {
			return fault.New(fault.Usage, "--forward: %s", fault.Message(err))
		}
	}
	if err := l.makeSigner(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := toAnywhere()
	defer out.Close()
	l.send, l.out = out.RoundTrip, l.stream()
	err := l.withHolder(ctx, l.follow)
	if ctx.Err() != nil && !waited(ctx) {
		err = nil // the user has interrupted the command
	}
	l.out.end()
	return err
}

// makeSigner makes what signs the messages.
func (l *listen) makeSigner() (err error) {
	secret, kept := "", false
	if l.secretFile != "" {
		if secret, err = readSecretFile(l.secretFile); err != nil {
			return err
		}
		kept = secret != ""
	}
	l.made, err = webhook.NewListener(&webhook.Spec{Events: l.spec.events, Recipes: l.spec.recipes, Children: &l.spec.children, Payload: &l.spec.payload}, secret)
	if err != nil {
		return err
	}
	if l.secretFile != "" && !kept {
		if err := writeSecretFile(l.secretFile, l.made.Secret()); err != nil {
			return err
		}
		l.say("a new secret is kept in %s", l.secretFile)
	}
	return nil
}

// readSecretFile returns the secret in a file; "" = there is no such file.
func readSecretFile(path string) (string, error) {
	f, _, err := userfile.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) || fault.CodeOf(err) == fault.FileNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, 1000))
	if err != nil {
		return "", userfile.OpenError(path, fault.Usage, err)
	}
	if secret := strings.TrimSpace(string(text)); secret != "" {
		return secret, nil
	}
	return "", fault.New(fault.Usage, "%s is empty: want the secret of a webhook in it, or no file", path)
}

// writeSecretFile keeps a secret in a new file that nobody else may read.
func writeSecretFile(path, secret string) error {
	root, base, err := userfile.OpenParent(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	f, err := userfile.NewAtomic(root, base, path, 0o600, false)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := io.WriteString(f, secret+"\n"); err != nil {
		return err
	}
	return f.Place()
}

// follow receives messages from the feed until ctx ends.
func (l *listen) follow(ctx context.Context, c *client.Client) error {
	from, err := c.Changes(ctx, 0, 0)
	if err != nil {
		return err
	}
	if l.secretFile == "" {
		l.say("the secret that verifies the signatures is %s", l.made.Secret())
	}
	l.say("listening to account %s; Ctrl-C ends it", l.account)
	n := 0
	for ch, err := range c.Feed(ctx, from.Last) {
		if err != nil {
			return err
		}
		m, err := l.made.Message(storedChange(&ch), func() (json.RawMessage, error) { return shownRun(ctx, c, ch.RunID) })
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		l.deliver(ctx, &ch, m)
		if n++; n == l.limit {
			return nil
		}
	}
	return ctx.Err()
}

// storedChange is a change as the store has it, from what the feed says.
func storedChange(ch *client.Change) *store.Change {
	c := &store.Change{
		N: ch.Number, At: ch.Time.UnixMicro(), Run: ch.RunID, Root: ch.RootRunID, Recipe: ch.Recipe, Status: ch.State, Code: fault.Code(ch.Code),
		Quarantined: ch.Quarantined, Entry: ch.Entry,
	}
	if ch.CompletedAt != nil {
		c.Ended = ch.CompletedAt.UnixMicro()
	}
	if ch.Type == "run.deleted" {
		c.Deleted, c.Hidden = ch.Removed, !ch.Removed
	}
	c.Kind, _ = ledger.ParseKind(ch.Kind) // a kind of a later release is shown as none
	c.Notice = ledger.Notice{Source: ch.LimitSource, Limit: ch.Limit, Amount: ch.Amount}
	return c
}

// shownRun is a run as the server shows it; nil = it is gone.
func shownRun(ctx context.Context, c *client.Client, id string) (json.RawMessage, error) {
	run, err := c.Runs.Get(ctx, id, true)
	switch fault.CodeOf(err) {
	case "":
		return json.Marshal(run)
	case fault.RunNotFound, fault.StoreCorrupt, fault.Quarantined:
		return nil, nil
	}
	return nil, err
}

// A received is a message in JSON. Its fields only grow.
type received struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Headers http.Header     `json:"headers"`
	Payload json.RawMessage `json:"payload"`
	Status  int             `json:"status,omitempty"` // of the answer of the receiver
	Error   string          `json:"error,omitempty"`  // why there was none
	Took    int64           `json:"tookMs,omitempty"`
}

// deliver prints a message, after it was sent to the receiver, if there is one.
func (l *listen) deliver(ctx context.Context, ch *client.Change, m *webhook.Message) {
	begun := l.now()
	header, err := l.made.Request(m, begun)
	r := received{ID: m.ID, Type: m.Type, Headers: header, Payload: m.Body}
	if l.forward != "" && err == nil {
		r.Status, err = l.post(ctx, header, m.Body)
		r.Took = l.now().Sub(begun).Milliseconds()
	}
	if err != nil {
		r.Error = fault.Message(err)
	}
	if l.output != asTable {
		l.out.add(r)
		return
	}
	of := ch.RunID
	if of == "" {
		of = fmt.Sprintf("change %d", ch.Number)
	}
	line := fmt.Sprintf("%s  %-16s  %s", begun.Format("15:04:05.000"), m.Type, of)
	switch {
	case r.Error != "":
		line += "  " + r.Error
	case l.forward != "":
		line += fmt.Sprintf("  HTTP %d, %d ms", r.Status, r.Took)
	}
	l.text("%s\n", view.OneLine(line))
	if l.forward == "" {
		l.text("  %s\n", view.OneLine(string(m.Body)))
	}
}

// post sends a message to the receiver.
func (l *listen) post(ctx context.Context, header http.Header, body []byte) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, forwardTime, fault.New(fault.StepTimeout, "the receiver did not answer within %s", forwardTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.forward, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = header.Clone()
	resp, err := l.send(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	return resp.StatusCode, nil
}
