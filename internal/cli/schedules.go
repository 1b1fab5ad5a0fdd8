// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) schedulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "Start recipes at times: by a cron expression, at an interval, or once",
		Long: "Start recipes at times: by a cron expression, at an interval, or once. `roux serve` starts the runs. The recipe is a registered one (`roux apply`), " +
			"and its version is found at each start. A schedule is named by its name or its id.",
		Example: `roux schedules add nightly report --cron '30 6 * * MON-FRI' --zone Europe/Berlin
roux schedules next nightly
roux schedules history nightly`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.addScheduleCommand(), a.listSchedulesCommand(), a.nextScheduleCommand(), a.runScheduleCommand(), a.scheduleHistoryCommand(),
		a.scheduleCommand("show", "Show a schedule", "", (*client.Schedules).Get),
		a.scheduleCommand("pause", "Let a schedule start nothing until it is resumed", ". What waits to be started is skipped. Runs that were started go on.", (*client.Schedules).Pause),
		a.scheduleCommand("resume", "Let a paused schedule go on from now", ". What it would have started meanwhile is not made up for.", (*client.Schedules).Resume),
		a.deleteCommand("delete", "schedule", "roux schedules delete nightly", func(ctx context.Context, c *client.Client, name string) error {
			return c.Schedules.Delete(ctx, name)
		}))
	return cmd
}

func (a *app) addScheduleCommand() *cobra.Command {
	var req client.NewSchedule
	var in, files []string
	cmd := &cobra.Command{
		Use:   "add NAME RECIPE",
		Short: "Make a schedule",
		Long: "Make a schedule: RECIPE, which may have @ and a version or a range, is started by --cron, --every or --at. A cron expression has minute, hour, day of " +
			"the month, month and day of the week on the clock of --zone, or is @hourly, @daily, @weekly, @monthly or @yearly. A time in the hour that is repeated in autumn happens once; " +
			"those in the hour that is lost in spring happen together, once, at its end.",
		Example: `roux schedules add nightly report@1 --cron '30 6 * * MON-FRI' --zone Europe/Berlin --input language=de
roux schedules add poll fetch --every 15m --overlap queue --jitter 30s
roux schedules add launch announce --at 2030-12-24T18:00 --zone Europe/Berlin`,
		Args: wants(2, 2, "NAME RECIPE --cron EXPRESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name, req.Recipe = args[0], args[1]
			if req.Cron == "" && req.Every == "" && req.At == "" {
				return fault.New(fault.Usage, "a schedule needs --cron, --every or --at, such as --cron '30 6 * * MON-FRI'")
			}
			list, err := a.openInputs(files)
			if err != nil {
				return err
			}
			defer closeInputs(list)
			return fetchAndShow(cmd.Context(), a, a.printSchedule, func(ctx context.Context, c *client.Client) (*client.Schedule, error) {
				v, err := c.Recipes.Get(ctx, req.Recipe)
				if err != nil {
					return nil, err
				}
				var doc struct {
					InputSchema json.RawMessage `json:"inputSchema"`
				}
				if err := json.Unmarshal(v.Document, &doc); err != nil {
					return nil, fault.Wrap(fault.InternalError, err, "the recipe cannot be read: %v", err)
				}
				params, err := inputs(in, doc.InputSchema, a.stdin)
				if err != nil {
					return nil, err
				}
				if len(params) > 0 {
					req.Parameters = params
				}
				infos, err := a.storeInputs(ctx, &remote.Server{Client: c}, list)
				if err != nil {
					return nil, err
				}
				for _, f := range infos {
					req.FileHashes = append(req.FileHashes, f.Hash)
				}
				return c.Schedules.Create(ctx, req)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Cron, "cron", "", "minute, hour, day of the month, month, day of the week, such as '30 6 * * MON-FRI'")
	f.StringVar(&req.Every, "every", "", "an interval from 10s on, such as 15m")
	f.StringVar(&req.At, "at", "", "once, such as 2030-12-24T18:00 on the clock of --zone")
	f.StringVar(&req.Zone, "zone", "", "time zone, such as Europe/Berlin (default UTC)")
	req.CatchUp, req.Overlap = string(schedule.CatchUpLast), string(schedule.OverlapSkip)
	f.Var(choice{&req.CatchUp, catchUpWords()}, "catch-up", "what becomes of times at which no server ran: the last one stands for all, none starts, or all start")
	f.IntVar(&req.CatchUpMax, "catch-up-max", schedule.DefaultCatchUpMax, "how many times --catch-up all makes up for, the newest")
	f.Var(choice{&req.Overlap, overlapWords()}, "overlap", "what becomes of a time at which the run before is active")
	f.StringVar(&req.Jitter, "jitter", "", "start up to so much later, such as 2m, by a delay that follows from schedule and time")
	f.StringArrayVar(&in, "input", nil, "input field name=value, or @file with an object of them (repeatable)")
	f.StringArrayVar(&files, "file", nil, "input file, or the hash of a file that is kept (repeatable)")
	f.StringToStringVar(&req.Labels, "label", nil, "label of the runs, name=value (repeatable)")
	f.Int64Var(&req.MaxCredits, "max-credits", 0, "the most credits that each run pays")
	f.StringVar(&req.Description, "description", "", "what it is for")
	f.BoolVar(&req.Paused, "paused", false, "begin paused")
	return cmd
}

func catchUpWords() (words []string) {
	for _, c := range schedule.CatchUps {
		words = append(words, string(c))
	}
	return words
}

func overlapWords() (words []string) {
	for _, o := range schedule.Overlaps {
		words = append(words, string(o))
	}
	return words
}

// whenText says when a schedule occurs.
func whenText(s *client.Schedule) string {
	switch {
	case s.Every != "":
		return "every " + s.Every
	case s.At != "":
		return "once, " + s.At + " " + s.Zone
	}
	return s.Cron + " " + s.Zone
}

func (a *app) printSchedule(s *client.Schedule) {
	d := details{{"schedule", s.ID}, {"name", s.Name}}
	d.add("state", a.stateSince(s.State, s.PausedAt))
	d.add("description", s.Description)
	d.add("recipe", s.Recipe)
	d.add("when", whenText(s))
	if s.NextAt != nil {
		d.add("next", view.Stamp(s.NextAt.UnixMicro()))
	}
	d.add("jitter", s.Jitter)
	d.add("catch up", s.CatchUp)
	d.add("overlap", s.Overlap)
	if s.Waiting > 0 {
		d.add("waiting", fmt.Sprint(s.Waiting))
	}
	d.add("input", strings.Join(s.InputFields, ", "))
	d.add("files", strings.Join(s.FileHashes, ", "))
	d.add("labels", labelsText(s.Labels))
	if s.MaxCredits > 0 {
		d.add("max credits", fmt.Sprint(s.MaxCredits))
	}
	d.add("last run", s.LastExecutionID)
	d.add("created", a.exact(s.CreatedAt.UnixMicro()))
	a.sheet(d)
}

func (a *app) listSchedulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the schedules of an account",
		Example: "roux schedules list",
		Args:    wants(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.Schedule, error) {
				return client.Collect(c.Schedules.List(ctx), 0)
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("account %s has no schedules; `%s` makes one", a.account, a.hint("schedules add NAME RECIPE --cron '30 6 * * *'", ""))
					return
				}
				rows := [][]string{{"NAME", "STATE", "NEXT", "RECIPE", "WHEN"}}
				for i := range list {
					s := &list[i]
					rows = append(rows, []string{s.Name, s.State, until(s.NextAt), view.OneLine(s.Recipe), whenText(s)})
				}
				a.table(rows, 4, 3)
			})
			return nil
		},
	}
}

// scheduleCommand returns a command that shows a schedule after fn has got or changed it.
func (a *app) scheduleCommand(verb, short, more string, fn func(*client.Schedules, context.Context, string) (*client.Schedule, error)) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " SCHEDULE",
		Short:   short,
		Long:    short + more,
		Example: "roux schedules " + verb + " nightly",
		Args:    wants(1, 1, "SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAndShow(cmd.Context(), a, a.printSchedule, func(ctx context.Context, c *client.Client) (*client.Schedule, error) {
				return fn(c.Schedules, ctx, args[0])
			})
		},
	}
}

func (a *app) nextScheduleCommand() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:     "next SCHEDULE",
		Short:   "List the next times of a schedule, as if it were not paused",
		Example: "roux schedules next nightly --count 10",
		Args:    wants(1, 1, "SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > 100 {
				return fault.New(fault.Usage, "--count %d: want 1 to 100", n)
			}
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.ScheduleTime, error) {
				return client.Collect(c.Schedules.Next(ctx, args[0], n), 0)
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				rows := [][]string{{"OCCURRENCE", "STARTS"}}
				for _, t := range list {
					rows = append(rows, []string{t.Occurrence, view.Stamp(t.At.UnixMicro())})
				}
				a.table(rows)
			})
			return nil
		},
	}
	cmd.Flags().IntVar(&n, "count", 5, "how many")
	return cmd
}

func (a *app) runScheduleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run-now SCHEDULE",
		Short: "Start a run of a schedule now",
		Long: "Start a run of a schedule now, also of a paused one. If the run before has not ended, the policy of overlap decides. " +
			"In a data directory that no process holds, the run only begins, and `roux serve` or `roux resume` carries it on.",
		Example: "roux schedules run-now nightly",
		Args:    wants(1, 1, "SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetchAndShow(cmd.Context(), a, a.printFiring, func(ctx context.Context, c *client.Client) (*client.ScheduleFiring, error) {
				return c.Schedules.Run(ctx, args[0])
			})
		},
	}
}

func (a *app) printFiring(f *client.ScheduleFiring) {
	d := details{{"result", f.Result}}
	d.add("run", f.ExecutionID)
	d.add("reason", view.Join(": ", f.ErrorCode, f.Reason))
	a.sheet(d)
}

func (a *app) scheduleHistoryCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "history SCHEDULE",
		Short:   "List what became of the last 100 times of a schedule, the newest first",
		Example: "roux schedules history nightly --limit 10",
		Args:    wants(1, 1, "SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 100 {
				return fault.New(fault.Usage, "--limit %d: want 1 to 100", limit)
			}
			list, err := fetch(cmd.Context(), a, func(ctx context.Context, c *client.Client) ([]client.ScheduleFiring, error) {
				return client.Collect(c.Schedules.History(ctx, args[0]), limit)
			})
			if err != nil {
				return err
			}
			a.show(orEmpty(list), func() {
				if len(list) == 0 {
					a.say("%s has started nothing yet", view.OneLine(args[0]))
					return
				}
				rows := [][]string{{"OCCURRENCE", "RESULT", "RUN", "REASON"}}
				for i := range list {
					rows = append(rows, firingRow(&list[i]))
				}
				a.table(rows, 3)
			})
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "at most this many")
	return cmd
}

func firingRow(f *client.ScheduleFiring) []string {
	result, run, reason := f.Result, f.ExecutionID, f.Reason
	if f.Count > 1 {
		result += fmt.Sprintf(" %d", f.Count)
		reason += ", until " + f.Last
	}
	if run == "" {
		run = "-"
	}
	if f.ErrorCode != "" {
		reason = f.ErrorCode + ": " + reason
	}
	return []string{f.Occurrence, result, run, view.OneLine(reason)}
}

// scheduleNames completes the schedules of the account.
func (a *app) scheduleNames(ctx context.Context, c *client.Client) []string {
	return wordsOf(c.Schedules.List(ctx), func(s *client.Schedule) string {
		return fmt.Sprintf("%s\t%s", s.Name, view.OneLine(view.Cut(whenText(s), 60)))
	})
}
