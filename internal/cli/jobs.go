// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Look at the work of outside services that steps wait for, and ask about it",
		Long: "Look at the work of outside services, and the tasks of remote workers, that steps of the account wait for: which there are, when their services are asked, " +
			"and what these have said. A job is named PROVIDER/JOB, as the list shows it; tasks of remote workers are those of the provider @workers. " +
			"A job that has ended is in the events of its run.",
		Example: `roux jobs list
roux jobs show farm/job_17
roux jobs poll farm/job_17`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.listJobsCommand(),
		a.jobCommand("show", "Show a job, with what its service has delivered", "", false, (*client.ExternalJobs).Get),
		a.jobCommand("poll", "Ask the service of a job now", " and act upon its answer, as the server does by itself at the time that `show` names. "+
			"It needs a server that carries out runs; a service that has asked for a pause is not asked", true, (*client.ExternalJobs).Poll))
	return cmd
}

func (a *app) listJobsCommand() *cobra.Command {
	var q client.JobQuery
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the jobs that steps wait for, the oldest of each provider first",
		Example: `roux jobs list
roux jobs list --provider farm --limit 10
roux jobs list --state cancelling`,
		Args: wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return fault.New(fault.Usage, "--limit %d: want 1 or more", limit)
			}
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.ExternalJob, error) {
				return client.Collect(c.ExternalJobs.List(ctx, q), limit+1)
			})
			if err != nil {
				return err
			}
			more := len(list) > limit
			list = list[:min(len(list), limit)]
			a.show(orEmpty(list), func() { a.printJobs(list) })
			if more {
				a.say("there are more; --limit shows them")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Provider, "provider", "", "only jobs of this provider; @workers = tasks of remote workers")
	cmd.Flags().Var(choice{&q.State, []string{"waiting", "cancelling"}}, "state", "only jobs in this state")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many are shown")
	return cmd
}

func (a *app) printJobs(list []client.ExternalJob) {
	if len(list) == 0 {
		a.say("no step of the account %s waits for a job", a.account)
		return
	}
	rows := [][]string{{"JOB", "STATE", "SINCE", "NEXT POLL", "EXPIRES", "STEP", "RUN"}}
	for i := range list {
		j := &list[i]
		rows = append(rows, []string{jobName(j), j.State, view.Stamp(j.SubmittedAt.UnixMicro()), until(j.NextPollAt), view.Stamp(j.ExpiresAt.UnixMicro()), view.OneLine(j.Step), j.ExecutionID})
	}
	a.table(rows, 5, 0)
}

func jobName(j *client.ExternalJob) string { return j.Provider + "/" + view.OneLine(j.Job) }

// jobCommand returns a command that does something with a job, and shows it.
func (a *app) jobCommand(verb, short, rest string, asks bool, fn func(*client.ExternalJobs, context.Context, string, string) (*client.ExternalJob, error)) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " PROVIDER/JOB",
		Short:   short,
		Long:    short + rest + ".",
		Example: "roux jobs " + verb + " farm/job_17",
		Args:    wants(1, 1, "PROVIDER/JOB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			provider, id, ok := strings.Cut(args[0], "/")
			if !ok || provider == "" || id == "" {
				return fault.New(fault.Usage, "%q: want PROVIDER/JOB, as `%s` shows it", view.OneLine(view.Cut(args[0], 60)), a.hint("jobs list", ""))
			}
			return fetchAndShow(cmd.Context(), a, func(j *client.ExternalJob) { a.printJob(j, asks) }, func(ctx context.Context, c *client.Client) (*client.ExternalJob, error) {
				return fn(c.ExternalJobs, ctx, provider, id)
			})
		},
	}
}

func (a *app) printJob(j *client.ExternalJob, asked bool) {
	d := details{{"job", jobName(j)}, {"state", j.State}, {"run", j.ExecutionID}, {"step", view.OneLine(j.Step)}, {"action", j.Action}}
	d.add("attempt", fmt.Sprint(j.Attempt))
	d.add("since", view.Stamp(j.SubmittedAt.UnixMicro()))
	d.add("expires", view.Stamp(j.ExpiresAt.UnixMicro()))
	switch p := j.LastPoll; {
	case j.State == "ended":
	case p == nil:
		d.add("last poll", "not known: none by this process")
	case p.Outcome == "failed":
		d.add("last poll", view.Stamp(p.At.UnixMicro())+": "+view.OneLine(view.Join(": ", string(p.Code), p.Detail)))
	default:
		d.add("last poll", view.Stamp(p.At.UnixMicro())+": it is under way")
	}
	if j.NextPollAt != nil {
		d.add("next poll", view.Stamp(j.NextPollAt.UnixMicro()))
	} else if j.State == "waiting" && j.Detail == "" {
		d.add("next poll", "none: this process does not ask")
	}
	if j.PausedUntil != nil {
		d.add("paused", "the service wants to be asked nothing until "+view.Stamp(j.PausedUntil.UnixMicro()))
	}
	d.add("worker", view.OneLine(j.Detail))
	for i := range j.Deliveries {
		w := &j.Deliveries[i]
		d.add("webhook", fmt.Sprintf("%s %s, %d bytes: %s", view.Stamp(w.ReceivedAt.UnixMicro()), view.OneLine(view.Cut(w.ID, 80)), w.Bytes, w.Outcome))
	}
	a.sheet(d)
	if asked && j.State == "ended" {
		a.say("the job has ended: `%s` says how", a.hint("trace "+j.ExecutionID, ""))
	}
}
