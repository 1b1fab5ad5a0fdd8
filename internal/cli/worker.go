// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/view"
)

// A workerSpec is what the user says of a worker.
type workerSpec struct {
	queue       string
	actions     []string
	labels      []string
	concurrency int
	grace       time.Duration
}

func (a *app) workerCommand() *cobra.Command {
	var w workerSpec
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Carry out tasks of a server on this machine: Roux's own actions, and commands of the operator",
		Long: "Carry out tasks of a queue of a server until SIGTERM or Ctrl-C; tasks under way then end first. The server's configuration says under `workers` which actions a queue has. " +
			"This command has Roux's own actions, the commands that the configuration here names under `commands`, and the providers that it names. The key needs the role worker. " +
			"Workers in other languages speak the same protocol.",
		Example: `roux worker --server https://roux.example.com --key-file key.txt --queue images
roux worker --queue images --action resize-image --action convert-image --concurrency 8
roux worker --queue gpu --label gpu=yes`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.work(cmd.Context(), &w) },
	}
	cmd.Flags().StringVar(&w.queue, "queue", "default", "queue whose tasks are carried out")
	cmd.Flags().StringArrayVar(&w.actions, "action", nil, "only this action (repeatable; default: all that there are here)")
	cmd.Flags().StringArrayVar(&w.labels, "label", nil, "what this worker has, as NAME=VALUE (repeatable)")
	cmd.Flags().IntVar(&w.concurrency, "concurrency", 4, "tasks that are under way at once, up to 1000")
	cmd.Flags().DurationVar(&w.grace, "grace", 30*time.Second, "how long tasks under way may take after SIGTERM")
	cmd.AddCommand(a.conformCommands()...)
	return cmd
}

// work carries out tasks.
func (a *app) work(ctx context.Context, w *workerSpec) error {
	if w.concurrency < 1 || w.concurrency > 1000 {
		return fault.New(fault.Usage, "--concurrency %d: want 1 to 1000", w.concurrency)
	}
	labels := map[string]string{}
	for _, l := range w.labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return fault.New(fault.Usage, "--label %q: want NAME=VALUE", view.OneLine(view.Cut(l, 60)))
		}
		labels[name] = value
	}
	own, err := a.workerActions(w.actions)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "roux-worker-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := a.built.Open(ctx, filepath.Join(dir, datadir.Commands)); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return a.withHolder(ctx, func(ctx context.Context, c *client.Client) error {
		worker := client.Worker{Client: c, Queue: w.queue, Actions: own, Labels: labels, Concurrency: w.concurrency, Grace: w.grace, Logger: a.log}
		a.say("carrying out tasks of the queue %s: %s", w.queue, strings.Join(namesOf(own), ", "))
		err := worker.Run(ctx)
		if err == nil && ctx.Err() != nil && !waited(ctx) {
			a.say("stopped: no task is left")
		}
		return err
	})
}

// workerActions returns the actions of this machine, or those of them that are named.
func (a *app) workerActions(names []string) (own []action.Action, err error) {
	byName := map[string]action.Action{}
	for _, act := range a.list {
		if act.Run != nil && len(act.Streams) == 0 && !jobs.Within(act.Provider) {
			byName[act.Name] = act
		}
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(byName))
	}
	var errs []error
	for _, name := range names {
		act, ok := byName[name]
		if !ok {
			errs = append(errs, fault.New(fault.Usage, "--action %q: this program cannot carry it out; `roux actions list` shows what there is", view.OneLine(view.Cut(name, 60))))
		}
		own = append(own, act)
	}
	return own, errors.Join(errs...)
}

func namesOf(list []action.Action) (names []string) {
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}
