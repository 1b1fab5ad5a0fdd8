// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action/actiontest"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/workspace"
)

func call(t *testing.T, name, dir string, files *actiontest.Files, input map[string]any) (map[string]any, error) {
	t.Helper()
	for _, a := range workspace.Actions() {
		if a.Name == name {
			opts := []actiontest.Option{actiontest.WithFiles(files)}
			if dir != "" {
				opts = append(opts, actiontest.WithWorkspace(dir))
			}
			out, err := actiontest.Call(t, a, input, opts...)
			return out.Object(), err
		}
	}
	t.Fatalf("there is no action %s", name)
	return nil, nil
}

// X162: what is written is read and listed, as a text and as a file.
func TestX162_WriteReadList(t *testing.T) {
	dir, files := t.TempDir(), actiontest.NewFiles(t)
	if out, err := call(t, "workspace-write", dir, files, map[string]any{"path": "./a//b.txt", "text": "hello"}); err != nil || out["path"] != "a/b.txt" {
		t.Fatalf("%v, %v", out, err)
	}
	out, err := call(t, "workspace-read", dir, files, map[string]any{"path": "a/b.txt", "output": "file"})
	if err != nil || out["name"] != "b.txt" {
		t.Fatalf("%v, %v", out, err)
	}
	if _, err := call(t, "workspace-write", dir, files, map[string]any{"path": "c", "file": out["file"]}); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, "workspace-write", dir, files, map[string]any{"path": "c", "file": out["file"]}); err != nil {
		t.Fatalf("once more, as after a crash: %v", err)
	}
	if out, err := call(t, "workspace-read", dir, files, map[string]any{"path": "c"}); err != nil || out["text"] != "hello" {
		t.Errorf("%v, %v", out, err)
	}
	for under, want := range map[string]int64{"": 2, "a": 1, "c": 0, "none": 0} {
		in := map[string]any{}
		if under != "" {
			in["under"] = under
		}
		if out, err := call(t, "workspace-list", dir, files, in); err != nil || out["count"] != want {
			t.Errorf("under %q: %v, %v; want %d files", under, out, err, want)
		}
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 2 {
		t.Errorf("the workspace has %v", left)
	}
}

// A15: nothing outside of the workspace is read, written or listed, also through links in it.
func TestX162_NothingOutside(t *testing.T) {
	parent := t.TempDir()
	dir, outside := filepath.Join(parent, "in"), filepath.Join(parent, "out")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	victim := filepath.Join(outside, "victim")
	for path, text := range map[string]string{victim: "mine", filepath.Join(dir, "inner"): "inner"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": victim, "dir": outside, "up": "../out", "absolute": "/etc"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	files := actiontest.NewFiles(t)
	for _, path := range []string{"link", "dir/victim", "dir/new", "up/victim", "up/new", "absolute/hostname", "../out/victim", victim, "inner/x", "CON", "a\x00b"} {
		if out, err := call(t, "workspace-write", dir, files, map[string]any{"path": path, "text": "changed"}); err == nil {
			t.Errorf("%q was written: %v", path, out)
		}
		if out, err := call(t, "workspace-read", dir, files, map[string]any{"path": path}); err == nil {
			t.Errorf("%q was read: %v", path, out)
		}
	}
	out, err := call(t, "workspace-list", dir, files, map[string]any{})
	if err != nil || out["count"] != int64(1) {
		t.Errorf("listed: %v, %v", out, err)
	}
	if text, err := os.ReadFile(victim); string(text) != "mine" {
		t.Errorf("the file outside is %q, %v", text, err)
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("outside there is %v", left)
	}
}

// A run without a workspace says so, and bounds are kept.
func TestX162_Refusals(t *testing.T) {
	dir, files := t.TempDir(), actiontest.NewFiles(t)
	binary, err := files.Put(t.Context(), strings.NewReader("\xff\xfe\x00"), "b", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, "workspace-write", dir, files, map[string]any{"path": "b", "file": binary.Hash}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "many"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir string
		in        map[string]any
		want      fault.Code
	}{
		{"workspace-list", "", map[string]any{}, fault.NotAvailable},
		{"workspace-read", dir, map[string]any{"path": "none"}, fault.FileNotFound},
		{"workspace-read", dir, map[string]any{"path": "b"}, fault.FileInvalid},
		{"workspace-read", dir, map[string]any{"path": "many"}, fault.FileInvalid},
		{"workspace-write", dir, map[string]any{"path": "many", "text": ""}, fault.FileInvalid},
		{"workspace-write", dir, map[string]any{"path": "x"}, fault.InputInvalid},
		{"workspace-write", dir, map[string]any{"path": "x", "text": "", "file": binary.Hash}, fault.InputInvalid},
	} {
		if out, err := call(t, tt.name, tt.dir, files, tt.in); fault.CodeOf(err) != tt.want {
			t.Errorf("%s %v: %v, %v; want %s", tt.name, tt.in, out, err, tt.want)
		}
	}
	sparse := filepath.Join(dir, "sparse")
	if err := errors.Join(os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 1<<30-10)); err != nil {
		t.Fatal(err)
	}
	if out, err := call(t, "workspace-write", dir, files, map[string]any{"path": "new/x", "text": "1234567890"}); fault.CodeOf(err) != fault.FileTooLarge {
		t.Errorf("over 1 GiB: %v, %v", out, err)
	}
	if out, err := call(t, "workspace-write", dir, files, map[string]any{"path": "sparse", "text": "in its place"}); err != nil {
		t.Errorf("what is replaced counts: %v, %v", out, err)
	}
	for i := range 10_000 {
		if err := os.WriteFile(filepath.Join(dir, "many", strings.Repeat("f", 1+i%90)+string(rune('a'+i/90%26))+string(rune('a'+i/2340))), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := call(t, "workspace-write", dir, files, map[string]any{"path": "one more", "text": ""}); fault.CodeOf(err) != fault.FileTooLarge {
		t.Errorf("over 10,000 files: %v, %v", out, err)
	}
	if out, err := call(t, "workspace-list", dir, files, map[string]any{}); fault.CodeOf(err) != fault.FileTooLarge {
		t.Errorf("over 10,000 files: %v, %v", out, err)
	}
}

// What a process that was killed while it wrote has left is removed, and does not count; a file that somebody
// else has of that name would be, so none is written.
func TestX162_WhatAKilledWriteLeaves(t *testing.T) {
	dir, files := t.TempDir(), actiontest.NewFiles(t)
	left := filepath.Join(dir, "a", "b", ".roux-tmp-LEFT")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(left, nil, 0o600), os.Truncate(left, 1<<30)); err != nil {
		t.Fatal(err)
	}
	if out, err := call(t, "workspace-list", dir, files, map[string]any{}); err != nil || out["count"] != int64(0) || out["totalBytes"] != int64(0) {
		t.Errorf("listed: %v, %v", out, err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("it was removed while it may be written: %v", err)
	}
	if out, err := call(t, "workspace-write", dir, files, map[string]any{"path": "a/c", "text": "new"}); err != nil {
		t.Errorf("it counts: %v, %v", out, err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there still: %v", err)
	}
	if out, err := call(t, "workspace-write", dir, files, map[string]any{"path": "a/.roux-tmp-mine", "text": "new"}); fault.CodeOf(err) != fault.InputInvalid {
		t.Errorf("written: %v, %v", out, err)
	}
	if out, err := call(t, "workspace-list", dir, files, map[string]any{"under": "./a"}); err != nil || out["count"] != int64(1) || out["files"].([]any)[0].(map[string]any)["path"] != "a/c" {
		t.Errorf("listed: %v, %v", out, err)
	}
}
