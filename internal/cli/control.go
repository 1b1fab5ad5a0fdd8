// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) cancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "cancel RUN",
		Short:   "End a run; what it compensates is compensated first",
		Example: "roux runs cancel @last --reason 'wrong file'",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.apply(cmd.Context(), args[0], change{
				done: "is cancelled",
				act: func(ctx context.Context, c *client.Client, _ store.Reader, head store.Head) error {
					_, err := c.Runs.Cancel(ctx, head.Run, client.Reason{Reason: reason})
					return err
				},
				fine: fault.ExitCancelled,
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (a *app) retryCommand() *cobra.Command {
	var from string
	var set []string
	cmd := &cobra.Command{
		Use:   "retry RUN",
		Short: "Run an ended run again, from what failed or from a step",
		Long: "Run an ended run again in a new generation: the steps that failed, or the step that --from names, with all steps that depend on them. " +
			"--set replaces fields of the run's input, so that steps that read them run again too, or raises its limits. Other recorded results are kept.",
		Example: "roux runs retry @last-failed\nroux runs retry @last --from convert --set in.language=en\nroux runs retry @last --set limits.max_total_steps=200000",
		Args:    wants(1, 1, "RUN [--from STEP] [--set in.name=value] [--set limits.name=N]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.apply(cmd.Context(), args[0], change{
				done: "runs again",
				act: func(ctx context.Context, c *client.Client, j store.Reader, head store.Head) error {
					p, err := store.LoadPlan(ctx, j, head)
					if err != nil {
						return err
					}
					if from != "" {
						if err := knownStep(p, from); err != nil {
							return err
						}
					}
					limits, rest, err := setLimits(set)
					if err != nil {
						return err
					}
					fields, err := setFields(rest, p.InputSchema)
					if err != nil {
						return err
					}
					req := client.RetryRequest{From: from, Limits: limits}
					if len(fields) > 0 {
						req.Input = fields
					}
					_, err = c.Runs.Retry(ctx, head.Run, req)
					return err
				},
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "step to start from (default: what failed)")
	cmd.Flags().StringArrayVar(&set, "set", nil, "input field to replace, in.name=value, or limit to raise, limits.name=N (repeatable)")
	return cmd
}

func (a *app) signalCommand() *cobra.Command {
	var payload string
	cmd := &cobra.Command{
		Use:     "signal RUN NAME",
		Short:   "Send a waiting run the signal it waits for",
		Example: `roux runs signal @last approved --payload '{"by": "ana"}'`,
		Args:    wants(2, 2, "RUN NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := a.payload(payload)
			if err != nil {
				return err
			}
			return a.apply(cmd.Context(), args[0], change{
				done: fmt.Sprintf("has the signal %q", args[1]),
				act: func(ctx context.Context, c *client.Client, j store.Reader, head store.Head) error {
					if head.Ended == 0 {
						names, err := signalsOf(ctx, j, head)
						if err == nil {
							if err = a.knownSignal(names, head.Run, args[1]); err != nil {
								err = a.signalBelow(ctx, j, head, err)
							}
						}
						if err != nil {
							return err
						}
					}
					signal := client.Signal{Name: args[1]}
					if len(data) > 0 {
						signal.Payload = data
					}
					_, err := c.Runs.Signal(ctx, head.Run, signal)
					return err
				},
			})
		},
	}
	cmd.Flags().StringVar(&payload, "payload", "", "JSON value that goes with the signal, @file, or @- for standard input")
	return cmd
}

// knownSignal refuses the name of a signal that no step of the recipe waits for,
// because the run would accept it and keep waiting.
func (a *app) knownSignal(names []string, run, name string) error {
	switch near := spell.Nearest(name, names); {
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fault.New(fault.Conflict, "no step of run %s waits for a signal", run)
	case near != "":
		return fault.New(fault.Conflict, "no step of run %s waits for the signal %q; did you mean `%s`?", run, view.OneLine(view.Cut(name, 60)), a.hint("runs signal", run+" "+near))
	}
	return fault.New(fault.Conflict, "no step of run %s waits for the signal %q; they wait for: %s", run, view.OneLine(view.Cut(name, 60)), view.OneLine(strings.Join(names, ", ")))
}

func (a *app) pauseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "pause RUN",
		Short: "Let no further attempt of a run begin",
		Long: "Let no further attempt of a run begin. Attempts in flight go on, and results, signals and timers are taken; what follows from them waits. " +
			"The ttl of the run goes on, and so does what it holds of its account's credits. `roux runs unpause` lets the run go on; a cancel ends it.",
		Example: "roux runs pause @last --reason 'too expensive'",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.apply(cmd.Context(), args[0], change{
				done: "is paused",
				act: func(ctx context.Context, c *client.Client, _ store.Reader, head store.Head) error {
					_, err := c.Runs.Pause(ctx, head.Run, client.Reason{Reason: reason})
					return err
				},
				stays: true,
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the journal")
	return cmd
}

func (a *app) unpauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "unpause RUN",
		Short:   "Let a paused run go on",
		Example: "roux runs unpause @last",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.apply(cmd.Context(), args[0], change{
				done: "goes on",
				act: func(ctx context.Context, c *client.Client, _ store.Reader, head store.Head) error {
					_, err := c.Runs.Unpause(ctx, head.Run, client.Reason{})
					return err
				},
			})
		},
	}
}

func (a *app) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "release RUN",
		Short:   "Let a quarantined run continue",
		Example: "roux runs release run_01K3",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.apply(cmd.Context(), args[0], change{
				done: "is released and goes on",
				act: func(ctx context.Context, c *client.Client, _ store.Reader, head store.Head) error {
					switch {
					case head.Quarantine == "":
						return fault.New(fault.Conflict, "run %s is not quarantined: it is %s", head.Run, head.Status)
					case head.Imported():
						return fault.New(fault.Conflict, "run %s was imported: `%s` makes it a run of this data directory", head.Run, a.hint("runs adopt", head.Run))
					}
					_, err := c.Runs.Release(ctx, head.Run, client.Reason{})
					return err
				},
			})
		},
	}
}

func (a *app) adoptCommand() *cobra.Command {
	var masked bool
	cmd := &cobra.Command{
		Use:   "adopt RUN",
		Short: "Make an imported run one of this data directory",
		Long: "Make an imported run one of this data directory. Until then it can be looked at, and neither retried nor resumed. One that has " +
			"ended can then be retried; one that has not goes on from where it was: its steps run here, with what the bundle says they were given. " +
			"Adopt only what you would run yourself. A bundle holds no input that the recipe marks as writeOnly, and with --redact no text: " +
			"a step would read [masked] or [redacted] there, so such a run is adopted with --masked only.",
		Example: "roux runs adopt run_01K3",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.apply(cmd.Context(), args[0], change{
				done: "is adopted",
				act: func(ctx context.Context, c *client.Client, j store.Reader, head store.Head) error {
					switch {
					case head.Quarantine == bundle.Importing:
						return fault.New(fault.Conflict, "run %s: %s", head.Run, bundle.Importing)
					case head.Parent != "" && head.Imported():
						return fault.New(fault.Conflict, "run %s is a child run and is adopted with its root: `%s`", head.Run, a.hint("runs adopt", head.Root))
					case !head.Imported():
						return fault.New(fault.Conflict, "run %s was not imported: there is nothing to adopt", head.Run)
					case strings.Contains(head.Quarantine, bundle.WithoutMasked) && !masked:
						return fault.New(fault.Conflict, "run %s was imported%s: its steps would read %s or %s there; start it anew with `roux run`, or adopt it with --masked",
							head.Run, bundle.WithoutMasked, view.Masked, view.Redacted)
					}
					// The root last: a command that was interrupted can be given again.
					if err := adoptBelow(ctx, c, j, head); err != nil {
						return err
					}
					_, err := c.Runs.Release(ctx, head.Run, client.Reason{})
					return err
				},
			})
		},
	}
	cmd.Flags().BoolVar(&masked, "masked", false, "also a run whose values were masked or redacted: its steps read [masked] or [redacted]")
	return cmd
}

// adoptBelow adopts the runs below a root.
func adoptBelow(ctx context.Context, c *client.Client, j store.Reader, root store.Head) error {
	q := store.Query{Account: root.Account, Root: root.Run, Limit: 500}
	for {
		heads, err := j.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range heads {
			if heads[i].Imported() {
				if _, err := c.Runs.Release(ctx, heads[i].Run, client.Reason{}); err != nil {
					return err
				}
			}
		}
		if len(heads) < q.Cap() {
			return nil
		}
		q.After = heads[len(heads)-1].Run
	}
}

// payload reads the payload of a signal.
func (a *app) payload(text string) (json.RawMessage, error) { return a.jsonFlag("payload", text) }

// jsonFlag reads the value of a flag that is JSON, or @file with that, @- = standard input; nil = it
// is empty.
func (a *app) jsonFlag(flag, text string) (json.RawMessage, error) {
	if path, ok := strings.CutPrefix(text, "@"); ok {
		in := a.stdin
		if path != "-" {
			f, err := userfile.Open(path, fault.FileNotFound)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		}
		b, err := io.ReadAll(io.LimitReader(in, maxSource+1))
		switch {
		case err != nil:
			return nil, userfile.OpenError(path, fault.FileNotFound, err)
		case len(b) > maxSource:
			return nil, fault.New(fault.Usage, "--%s @%s: it is larger than %s, the limit", flag, path, view.Bytes(maxSource))
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	raw, err := jsonx.CanonicalRaw([]byte(text))
	if err != nil {
		return nil, fault.New(fault.Usage, "--%s: want JSON, such as '{\"by\": \"ana\"}': %v", flag, err)
	}
	return raw, nil
}

// A change is what a command does to one run, and how it reports it.
type change struct {
	act func(ctx context.Context, c *client.Client, j store.Reader, head store.Head) error
	// done completes the message "RUN …" that reports the change, for example with "is
	// cancelled".
	done string
	// fine is an exit code of the run that counts as success.
	fine int
	// stays is true when nothing more happens to the run: without another process no
	// attempt of it begins, and it is not followed.
	stays bool
}

// apply applies a change to a run. If another process holds the directory, it asks
// that process, which continues the run. Otherwise this process applies the change and
// follows the run as resume does.
func (a *app) apply(ctx context.Context, name string, s change) error {
	ctx = a.following(ctx)
	if r, err := a.reach(ctx); err != nil {
		return err
	} else if r != nil {
		return a.applyThere(ctx, &connection{Client: r.Client, reader: r}, name, s)
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return err
	}
	if err := datadir.MustExist(dir); err != nil {
		return err
	}
	var found store.Head
	open := func(ctx context.Context) (*host, error) {
		return a.openIdle(ctx, s.stays, func(ctx context.Context, r store.Reader) (list []store.Head, err error) {
			if found, err = a.findRun(ctx, r, name); err != nil || found.Root == "" {
				return []store.Head{found}, err
			}
			root, err := r.Head(ctx, store.Key{Account: found.Account, Run: found.Root})
			return []store.Head{found, root}, err
		})
	}
	return a.asking(ctx, open, func(ctx context.Context, c *connection) error {
		if c.host != nil {
			return a.applyHere(ctx, c, found, s)
		}
		return a.applyThere(ctx, c, name, s)
	})
}

// applyThere applies a change to a run that another process or a server carries on.
func (a *app) applyThere(ctx context.Context, c *connection, name string, s change) error {
	head, err := a.findRun(ctx, c.reader, name)
	if err != nil {
		return err
	}
	if err := s.act(ctx, c.Client, c.reader, head); err != nil {
		return err
	}
	a.changed(head.Run, s.done)
	return nil
}

// applyHere applies a change to a run that this process carries on.
func (a *app) applyHere(ctx context.Context, c *connection, head store.Head, s change) error {
	h := c.host
	defer h.abandon()
	sigs, unhook := interrupts()
	defer unhook()
	// A child run goes on with its root, which is what the user waits for.
	shown := head
	if head.Root != "" {
		var err error
		if shown, err = h.Head(ctx, store.Key{Account: head.Account, Run: head.Root}); err != nil {
			return err
		}
	}
	skip, err := lastEvent(ctx, h, shown.Key)
	if err != nil {
		return err
	}
	if err := s.act(ctx, c.Client, h, head); err != nil {
		return h.refused(err)
	}
	if s.stays {
		a.changed(head.Run, s.done)
		return nil
	}
	p, err := store.LoadPlan(ctx, h, shown)
	if err != nil {
		return err
	}
	h.guests.admit()
	err = a.carry(ctx, h, sigs, []*followed{{id: shown.Run, plan: p, skip: skip}}, false)
	var end exit
	if errors.As(err, &end) && s.fine != 0 && int(end) == s.fine {
		return nil
	}
	return err
}

func (a *app) changed(run, what string) {
	a.show(map[string]string{"id": run, "done": what}, func() { a.text("%s %s\n", run, what) })
}
