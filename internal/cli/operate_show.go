// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/internal/view"
)

// fetch returns what fn gets with the client of [app.operating].
func fetch[T any](ctx context.Context, a *app, fn func(context.Context, *client.Client) (T, error)) (got T, err error) {
	err = a.operating(ctx, false, func(ctx context.Context, c *client.Client) (err error) {
		got, err = fn(ctx, c)
		return err
	})
	return got, err
}

// fetchAndShow shows what fn gets with the client of [app.operating]: with people in the form for
// people, see [app.show].
func fetchAndShow[T any](ctx context.Context, a *app, people func(T), fn func(context.Context, *client.Client) (T, error)) error {
	got, err := fetch(ctx, a, fn)
	if err != nil {
		return err
	}
	a.show(got, func() { people(got) })
	return nil
}

// deleteCommand returns a command that deletes a thing of a kind, such as a schedule, which has a
// history and runs.
func (a *app) deleteCommand(verb, kind, example string, fn func(ctx context.Context, c *client.Client, name string) error) *cobra.Command {
	name := strings.ToUpper(kind)
	return &cobra.Command{
		Use:     verb + " " + name,
		Short:   "Delete a " + kind + " with its history; its runs go on",
		Example: example,
		Args:    wants(1, 1, name),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.operating(cmd.Context(), false, func(ctx context.Context, c *client.Client) error { return fn(ctx, c, args[0]) })
			if err != nil {
				return err
			}
			a.show(map[string]string{kind: args[0], "done": "is deleted"}, func() { a.text("%s is deleted\n", view.OneLine(args[0])) })
			return nil
		},
	}
}

// details are the lines of a sheet: names and texts.
type details [][]string

// add adds a line, unless its text is empty.
func (d *details) add(name, text string) {
	if text != "" {
		*d = append(*d, []string{name, view.OneLine(text)})
	}
}

// stateSince says in which state a thing is, and since when if it is paused.
func (a *app) stateSince(state string, paused *time.Time) string {
	if paused != nil {
		state += " since " + a.exact(paused.UnixMicro())
	}
	return state
}

// labelsText lists labels by name.
func labelsText(labels map[string]string) string {
	texts := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, name+"="+labels[name])
	}
	return strings.Join(texts, ", ")
}
