// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// completionTime bounds the time that a completion takes.
const completionTime = 2 * time.Second

// completeFlag completes the value of a flag.
func completeFlag(cmd *cobra.Command, flag string, words func() []string) {
	fn := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words(), cobra.ShellCompDirectiveNoFileComp
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // a flag that was never defined: no input can cause it
	}
}

// completeRuns completes the newest runs as the first argument, and the result of
// more as further arguments.
func (a *app) completeRuns(more func(ctx context.Context, j store.Reader, run string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) (list []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		// An error completes nothing; the command itself will report it.
		_ = a.reading(ctx, func(ctx context.Context, j store.Reader) error {
			if len(args) == 0 {
				list = a.runNames(ctx, j, begun)
			} else if more != nil {
				list = more(ctx, j, args[0])
			}
			return nil
		})
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// offered is the number of runs that are offered.
const offered = 50

func (a *app) runNames(ctx context.Context, j store.Reader, begun string) []string {
	var list []string
	if strings.HasPrefix("@last-failed", begun) && (begun == "" || begun[0] == '@') {
		list = append(list, "@last\tthe newest run", "@last-failed\tthe newest run that failed")
	}
	q := store.Query{Account: a.account, Limit: offered}
	if strings.HasPrefix(begun, "run_") {
		q.Prefix = begun
	}
	heads, err := j.List(ctx, q)
	if err != nil {
		return list
	}
	for _, h := range heads {
		if h.Damage != "" {
			list = append(list, h.Run+"\t"+damagedStatus)
			continue
		}
		list = append(list, h.Run+"\t"+view.OneLine(view.Cut(h.Recipe, 32))+", "+view.Join(" ", importedWord(h.Imported()), h.Status)+", "+ago(a.now(), h.Created))
	}
	return list
}

// stepNames returns the steps of a run.
func (a *app) stepNames(ctx context.Context, j store.Reader, run string) (list []string) {
	head, err := a.findRun(ctx, j, run)
	if err != nil {
		return nil
	}
	v, _, err := stateOf(ctx, j, head)
	if err != nil {
		return nil
	}
	for _, s := range v.Order {
		if v.ByPath[s.Path] == s && len(list) < 10*offered {
			list = append(list, s.Path+"\t"+s.Status)
		}
	}
	return list
}

// plainBash makes the completions of bash work without the package
// bash-completion, which is missing on macOS and in containers. Each Tab would
// print that a command is not found.
func (a *app) plainBash(root *cobra.Command) {
	cmd, rest, err := root.Find([]string{"completion", "bash"})
	if err != nil || len(rest) > 0 || cmd.RunE == nil {
		return
	}
	generate := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.text("%s", bashWords)
		return generate(cmd, args)
	}
}

// bashWords defines the functions of bash-completion that the script calls.
const bashWords = `if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
_get_comp_words_by_ref()
{
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=
    [ "$COMP_CWORD" -gt 0 ] && prev=${COMP_WORDS[COMP_CWORD-1]}
    words=("${COMP_WORDS[@]}")
    cword=$COMP_CWORD
}
fi
if ! declare -F __ltrim_colon_completions >/dev/null 2>&1; then
__ltrim_colon_completions() { :; }
fi
if ! declare -F _filedir >/dev/null 2>&1; then
_filedir()
{
    local IFS=$'\n' kind=-f
    [ "$1" = -d ] && kind=-d
    COMPREPLY+=($(compgen $kind -- "$cur"))
    compopt -o filenames 2>/dev/null
}
fi

`

func outputWords() []string { return []string{asTable, asJSON, asLines, asYAML, asName, asTemplate} }

// completeRecipeOrRun completes a run when the word begins like one, else a file.
func (a *app) completeRecipeOrRun(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if strings.HasPrefix(begun, "@") || strings.HasPrefix(begun, "run_") {
		return a.completeRuns(nil)(cmd, args, begun)
	}
	return completeRecipes(cmd, args, begun)
}

// completeFiles completes hashes of stored files, and shows their names.
func (a *app) completeFiles(cmd *cobra.Command, _ []string, begun string) (list []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	_ = a.filing(ctx, false, func(ctx context.Context, s remote.Files) error {
		found, err := s.ListFiles(ctx, blob.Query{Limit: offered})
		for _, e := range found {
			if hash := e.Info.Hash[:shortHash]; strings.HasPrefix(hash, begun) {
				list = append(list, hash+"\t"+view.OneLine(view.Cut(e.Info.Name, 40))+", "+e.Info.MimeType)
			}
		}
		return err
	})
	return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// signalNames returns the signals that steps of a run wait for.
func (a *app) signalNames(ctx context.Context, j store.Reader, run string) []string {
	head, err := a.findRun(ctx, j, run)
	if err != nil {
		return nil
	}
	names, _ := signalsOf(ctx, j, head) // a completion reports no errors
	return names
}

// signalsOf returns the signals that steps of the recipe of a run wait for.
func signalsOf(ctx context.Context, j store.Reader, head store.Head) (list []string, err error) {
	p, err := store.LoadPlan(ctx, j, head)
	if err != nil {
		return nil, err
	}
	for i := range p.Steps {
		if s := p.Steps[i].Signal; s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list, nil
}

// completeRecipes completes files that can be recipes.
func completeRecipes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// statusWords returns the values of --status.
func statusWords() []string {
	var names []string
	for s := journal.RunPending; s <= journal.RunExpired; s++ {
		names = append(names, s.String())
	}
	return names
}
