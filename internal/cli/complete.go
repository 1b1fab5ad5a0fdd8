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

// completions sets the completions of all commands. They are in one place so that
// a new command is not forgotten.
func (a *app) completions(root *cobra.Command) {
	runs, steps := a.completeRuns(nil), a.completeRuns(a.stepNames)
	second := func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) { // NAME RECIPE
		if len(args) != 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeOf(a.recipeNames)(cmd, nil, begun)
	}
	for path, fn := range map[string]cobra.CompletionFunc{
		"resume": runs, "runs get": runs, "runs cancel": runs, "runs retry": runs, "runs signal": a.completeRuns(a.signalNames),
		"runs release": runs, "runs pause": runs, "runs unpause": runs, "credits explain": runs, "runs delete": runs, "runs watch": runs, "events": runs, "replay": runs, "explain": steps, "logs": steps, "trace": runs,
		"diff":      a.completeRuns(func(ctx context.Context, j store.Reader, _ string) []string { return a.runNames(ctx, j, "run_") }),
		"files get": a.completeFiles, "files inspect": a.completeFiles, "files rm": a.completeFiles,
		"recipes get": a.completeOf(a.recipeNames), "recipes source": a.completeOf(a.recipeNames), "recipes versions": a.completeOf(a.recipeNames), "recipes diff": a.completeOf(a.recipeNames),
		"recipes deprecate": a.completeOf(a.recipeNames), "recipes activate": a.completeOf(a.recipeNames), "recipes delete": a.completeOf(a.recipeNames), "apply": completeRecipes,
		"keys get": a.completeOf(a.keyNames), "keys rotate": a.completeOf(a.keyNames), "keys revoke": a.completeOf(a.keyNames),
		"webhooks get": a.completeOf(a.hookNames), "webhooks update": a.completeOf(a.hookNames), "webhooks rotate": a.completeOf(a.hookNames), "webhooks test": a.completeOf(a.hookNames), "webhooks delete": a.completeOf(a.hookNames),
		"webhooks deliveries list": a.completeOf(a.hookNames), "webhooks deliveries get": a.completeOf(a.hookNames), "webhooks deliveries resend": a.completeOf(a.hookNames),
		"schedules add":  second,
		"schedules show": a.completeOf(a.scheduleNames), "schedules pause": a.completeOf(a.scheduleNames), "schedules resume": a.completeOf(a.scheduleNames), "schedules delete": a.completeOf(a.scheduleNames),
		"schedules next": a.completeOf(a.scheduleNames), "schedules run-now": a.completeOf(a.scheduleNames), "schedules history": a.completeOf(a.scheduleNames),
		"triggers get": a.completeOf(a.triggerNames), "triggers pause": a.completeOf(a.triggerNames), "triggers resume": a.completeOf(a.triggerNames), "triggers rm": a.completeOf(a.triggerNames),
		"triggers test": a.completeOf(a.triggerNames), "triggers history": a.completeOf(a.triggerNames), "triggers add": second,
		"export": runs, "graph": a.completeRecipeOrRun, "validate": completeRecipes, "estimate": completeRecipes,
	} {
		cmd, rest, err := root.Find(strings.Fields(path))
		if err == nil && len(rest) == 0 && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = fn
		}
	}
	for path, words := range map[string]func() []string{
		"keys create --role": roleWords, "keys create --scope": scopeWords, "keys create --reset": resetWords,
		"schedules add --catch-up": catchUpWords, "schedules add --overlap": overlapWords,
		"triggers add --scheme": schemeWords, "triggers add --encoding": encodingWords, "triggers add --if-active": ifActiveWords,
		"listen --events": eventWords, "listen --payload": payloadWords,
		"webhooks create --events": eventWords, "webhooks create --payload": payloadWords, "webhooks update --events": eventWords, "webhooks update --payload": payloadWords,
		"runs delete --status": statusWords, "runs list --status": statusWords, "--output": outputWords, "--profile": a.profileWords, "--time": func() []string { return []string{timeRelative, timeISO} },
	} {
		at := strings.Fields(path)
		cmd, rest, err := root.Find(at[:len(at)-1])
		if err == nil && len(rest) == 0 {
			completeFlag(cmd, strings.TrimPrefix(at[len(at)-1], "--"), words)
		}
	}
	for _, path := range []string{"runs retry"} {
		if cmd, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 {
			fn := func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				if len(args) == 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return steps(cmd, args, begun)
			}
			if err := cmd.RegisterFlagCompletionFunc("from", fn); err != nil {
				panic(err) // a flag that was never defined: no input can cause it
			}
		}
	}
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
