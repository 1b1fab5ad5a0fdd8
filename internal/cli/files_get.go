// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) filesGet() *cobra.Command {
	var to, span string
	var force bool
	cmd := &cobra.Command{
		Use:   "get HASH",
		Short: "Fetch a file, or part of one",
		Long: "Fetch a file, or part of one, to standard output or into a file. The hash of a whole file is verified while it is read; of a part its size and " +
			"the checksums of the 4 MiB pieces it touches. What turns out to be damaged ends in an error, and -O then leaves nothing behind.",
		Example: `roux files get 1f3a2b -O report.pdf
roux files get 1f3a2b -O downloads/
roux files get 1f3a2b --range 0-1023 | xxd`,
		Args: wants(1, 1, "HASH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.filing(cmd.Context(), false, func(ctx context.Context, s remote.Files) error {
				f, err := s.FindFile(ctx, args[0])
				if err != nil {
					return err
				}
				from, n := int64(0), int64(-1)
				if span != "" {
					if from, n, err = parseRange(span, f.Info.Size); err != nil {
						return err
					}
				}
				src, err := s.ReadFile(ctx, f.Info.Hash, from, n)
				if err != nil {
					return err
				}
				defer func() { _ = src.Close() }()
				if to == "" || to == "-" {
					return a.toStdout(src, f.Info.Name)
				}
				path, err := userfile.Save(src, to, f.Info.Name, f.Info.Hash, force)
				if err == nil {
					a.say("%s", view.OneLine(path))
				}
				return err
			})
		},
	}
	cmd.Flags().StringVarP(&to, "to", "O", "", "file to write, or a directory to write it into under its own name; - is standard output")
	cmd.Flags().StringVar(&span, "range", "", "only these bytes, counted from 0: 0-1023, 1024-, or -500 for the last 500")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

// parseRange reads a range as in HTTP: the first and the last byte, one of which
// may be missing. A last byte past the end means the end.
func parseRange(text string, size int64) (from, n int64, err error) {
	bad := func() (int64, int64, error) {
		return 0, 0, fault.New(fault.Usage, "--range %s: want the first and the last byte, such as 0-1023, 1024- or -500", view.OneLine(view.Cut(text, 40)))
	}
	first, last, ok := strings.Cut(text, "-")
	if !ok || first == "" && last == "" {
		return bad()
	}
	number := func(s string) (int64, bool) {
		v, err := strconv.ParseUint(s, 10, 63)
		return int64(v), err == nil
	}
	if first == "" {
		n, ok := number(last)
		if !ok || n == 0 {
			return bad()
		}
		n = min(n, size)
		return size - n, n, nil
	}
	from, ok = number(first)
	end := int64(math.MaxInt64 - 1)
	if last != "" && ok {
		end, ok = number(last)
	}
	if !ok || end < from {
		return bad()
	}
	if from >= size {
		return 0, 0, fault.New(fault.Usage, "--range %s: the file has %d bytes", text, size)
	}
	return from, min(end, size-1) - from + 1, nil
}

// toStdout writes a file to standard output. It refuses binary content on a
// terminal, which control characters could confuse.
func (a *app) toStdout(src io.Reader, name string) error {
	in := bufio.NewReaderSize(src, 64<<10)
	if term.IsTerminal(a.stdout) {
		head, err := in.Peek(8 << 10)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if !isText(head) {
			return fault.New(fault.Usage, "this file is no text: give -O %s, or send standard output elsewhere", term.ShellQuote(userfile.SafeName(name, "FILE")))
		}
	}
	_, err := io.Copy(a.stdout, in)
	return err
}

// isText reports whether b is text: valid UTF-8, and no control characters other
// than those of plain text.
func isText(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return !utf8.FullRune(b) // b may end inside a character
		}
		if view.Unprintable(r) && r != '\r' && r != '\f' {
			return false
		}
		b = b[n:]
	}
	return true
}
