// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// maxListed is how many bytes the list of the files of a repository may have.
	maxListed = 16 << 20
	// maxSaid is how many bytes of the messages of git are read.
	maxSaid = 8 << 10
)

// gitOptions keep git from doing anything but what it is told: no hooks, no helpers, no other
// protocol, no submodules, and nothing in the background.
var gitOptions = []string{
	"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.askPass=", "-c", "credential.helper=",
	"-c", "protocol.allow=never", "-c", "protocol.http.allow=always", "-c", "http.followRedirects=false",
	"-c", "fetch.recurseSubmodules=false", "-c", "submodule.recurse=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
	// A pack stays one, so that its size bounds what is written.
	"-c", "fetch.unpackLimit=1", "-c", "core.bigFileThreshold=1m", "-c", "core.deltaBaseCacheLimit=16m", "-c", "pack.threads=1",
}

// A checkout is a bare repository in a directory that is removed afterwards. Its files are
// read from their objects and never written, so that nothing in them has an effect.
type checkout struct {
	git, dir string
	source   *Source
}

// repository returns the recipes and lenses of a repository, as an archive, and its commit.
func (f *Fetcher) repository(ctx context.Context, s *Source) (content []byte, commit string, err error) {
	git := f.cfg.Git
	if git == "" {
		if git, err = exec.LookPath("git"); err != nil {
			return nil, "", fault.New(fault.NotAvailable, "%s needs the program git, which is not in PATH", s.Show())
		}
	}
	dir, err := os.MkdirTemp("", "roux-git-")
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := &checkout{git: git, dir: dir, source: s}
	relay, err := newRelay(ctx, f.cfg.HTTP, s)
	if err != nil {
		return nil, "", err
	}
	defer relay.close()
	if _, err := c.run(ctx, nil, "init", "--quiet", "--bare", "--template=", c.repo()); err != nil {
		return nil, "", err
	}
	_, err = c.run(ctx, nil, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", relay.url(), wanted(s))
	switch reason := relay.reason(); {
	case reason != nil:
		return nil, "", reason
	case err != nil:
		return nil, "", relay.hide(err)
	}
	out, err := c.run(ctx, nil, "rev-parse", "--verify", "--quiet", "FETCH_HEAD^{commit}")
	if err != nil {
		return nil, "", err
	}
	commit = strings.TrimSpace(string(out))
	content, err = c.archive(ctx, commit)
	return content, commit, err
}

func wanted(s *Source) string {
	if s.Ref == "" {
		return "HEAD"
	}
	return s.Ref
}

func (c *checkout) repo() string { return filepath.Join(c.dir, "repository") }

// run runs git and returns what it has printed.
func (c *checkout) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	var out bytes.Buffer
	err := c.stream(ctx, stdin, args, func(r io.Reader) error {
		_, err := io.Copy(&out, io.LimitReader(r, maxListed+1))
		if out.Len() > maxListed {
			return fault.New(fault.FileTooLarge, "%s: git lists more than %d bytes", c.source.Show(), maxListed)
		}
		return err
	})
	return out.Bytes(), err
}

// stream runs git, and passes what it prints to read.
func (c *checkout) stream(ctx context.Context, stdin io.Reader, args []string, read func(io.Reader) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, c.git, slices.Concat(gitOptions, args)...)
	endGroup(cmd)
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.environment(), stdin
	said := &head{most: maxSaid}
	cmd.Stderr = said
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fault.Wrap(fault.NotAvailable, err, "git cannot be started: %v", err)
	}
	wrong := read(pipe)
	if wrong != nil {
		stop() // it may have more to say
	}
	_, _ = io.Copy(io.Discard, pipe)
	err = cmd.Wait()
	switch {
	case wrong != nil:
		return wrong
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fault.Wrap(fault.ServiceUnavailable, err, "%s could not be read: git %s: %s", c.source.Show(), args[0], said.last())
	}
	return nil
}

// environment is all that git gets: nothing of the configuration of the user or the system,
// no proxy, no key and nobody to ask.
func (c *checkout) environment() []string {
	env := []string{
		"HOME=" + c.dir, "XDG_CONFIG_HOME=" + c.dir, "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_DIR=" + c.repo(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_ALLOW_PROTOCOL=http",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_ALLOC_LIMIT=512m", "GIT_OPTIONAL_LOCKS=0",
	}
	for _, name := range []string{"SYSTEMROOT", "TEMP", "TMP"} { // programs do not start without them on Windows
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// A blob is a file of a commit.
type blob struct {
	name, id string
	size     int64
}

// archive returns the recipes and lenses of a commit as a tar archive, which depends on their
// names and texts only.
func (c *checkout) archive(ctx context.Context, commit string) ([]byte, error) {
	blobs, err := c.blobs(ctx, commit)
	if err != nil {
		return nil, err
	}
	var ids, out bytes.Buffer
	for _, b := range blobs {
		ids.WriteString(b.id + "\n")
	}
	t := tar.NewWriter(&out)
	err = c.stream(ctx, &ids, []string{"cat-file", "--batch"}, func(r io.Reader) error {
		objects := bufio.NewReader(r)
		for _, b := range blobs {
			line, err := objects.ReadString('\n')
			if err == nil && line != fmt.Sprintf("%s blob %d\n", b.id, b.size) {
				err = fmt.Errorf("it has no object %s", b.id)
			}
			if err == nil {
				err = t.WriteHeader(&tar.Header{Name: b.name, Mode: 0o644, Size: b.size, Typeflag: tar.TypeReg})
			}
			if err == nil {
				_, err = io.CopyN(t, objects, b.size)
			}
			if err == nil {
				_, err = objects.Discard(1) // the end of the line
			}
			if err != nil {
				return fault.Wrap(fault.FileInvalid, err, "%s: %q cannot be read: %v", c.source.Show(), view.OneLine(b.name), err)
			}
		}
		return nil
	})
	if err = errors.Join(err, t.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// blobs lists the recipes and lenses of a commit by their names. Links and submodules are
// passed over: git has no text of them.
func (c *checkout) blobs(ctx context.Context, commit string) (list []blob, err error) {
	args := []string{"ls-tree", "-r", "-z", "-l", "--full-tree", commit}
	if c.source.Sub != "" {
		args = append(args, "--", c.source.Sub+"/")
	}
	out, err := c.run(ctx, nil, args...)
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for line := range strings.SplitSeq(string(out), "\x00") {
		about, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(about)
		if !ok || len(fields) != 4 || fields[1] != "blob" || fields[0] != "100644" && fields[0] != "100755" || !isText(path.Base(name)) {
			continue
		}
		size, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return nil, fault.New(fault.FileInvalid, "%s: git does not know the size of %q", c.source.Show(), view.OneLine(name))
		}
		if total += size; size > maxText || total > MaxBytes {
			return nil, tooLarge(c.source.Show())
		}
		if list = append(list, blob{name, fields[2], size}); len(list) > maxKept {
			return nil, fault.New(fault.FileTooLarge, "%s has more than %d files of YAML and JSON: name a directory in it with #", c.source.Show(), maxKept)
		}
	}
	slices.SortFunc(list, func(a, b blob) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// A head keeps the beginning of what is written to it.
type head struct {
	text []byte
	most int
}

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), h.most-len(h.text))]...)
	return len(p), nil
}

// last returns the last line, which is the error.
func (h *head) last() string {
	lines := strings.Split(strings.TrimSpace(string(h.text)), "\n")
	return view.OneLine(view.Cut(strings.TrimSpace(lines[len(lines)-1]), 300))
}
