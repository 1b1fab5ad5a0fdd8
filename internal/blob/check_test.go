// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// TestCheckNamesFlips: one bit is flipped at each of 20 places in a file and 20 in the
// record of its account. Check names each flip, and finds nothing after the flip is
// undone.
func TestCheckNamesFlips(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := s.Put(t.Context(), "an-account-with-a-long-name", strings.NewReader(strings.Repeat("some bytes ", 100)), "a.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	named := func() (all []error) {
		read, err := s.Check(t.Context(), func(err error) error { all = append(all, err); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 && (read.Files != 1 || read.Bytes != info.Size) {
			t.Fatalf("read %+v", read)
		}
		return all
	}
	if all := named(); len(all) > 0 {
		t.Fatalf("a sound store: %v", all)
	}
	p := placeOf("an-account-with-a-long-name", info.Hash)
	for _, name := range []string{p.file(), filepath.Join(accountDir("an-account-with-a-long-name"), accountFile)} {
		at := filepath.Join(dir, name)
		sound, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			data := append([]byte(nil), sound...)
			data[i*len(data)/20] ^= 1 << (i % 8)
			overwrite(t, at, data)
			if all := named(); len(all) != 1 || !errors.Is(all[0], fault.FileInvalid) {
				t.Errorf("%s, flip %d: %v", name, i, all)
			}
		}
		overwrite(t, at, sound)
		if all := named(); len(all) > 0 {
			t.Errorf("after all was undone: %v", all)
		}
	}
}

// F01: a process that is killed while it puts the first file of an account leaves a directory
// without its name and without files. That is no damage, and the next file completes it.
func TestF01_CheckOfADirectoryThatWasBegun(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	info := put(t, s, "late", "content", "")
	at := filepath.Join(dir, accountDir("late"))
	if err := os.Remove(filepath.Join(at, accountFile)); err != nil {
		t.Fatal(err)
	}
	found := func() (n int) {
		if _, err := s.Check(t.Context(), func(error) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if found() != 1 {
		t.Error("a file of an unknown account is not reported")
	}
	p := placeOf("late", info.Hash)
	for _, name := range []string{p.file(), p.sidecar()} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if found() != 0 {
		t.Error("a directory that was begun is reported")
	}
	put(t, s, "late", "content", "")
	if found() != 0 {
		t.Error("it is not completed")
	}
}

// Check continues while complain returns nil, and stops with its first error.
func TestCheckGoesOn(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, account := range []string{"a", "b", "c"} {
		put(t, s, account, "content of "+account, "")
		overwrite(t, filepath.Join(dir, accountDir(account), accountFile), []byte("nobody"))
	}
	n := 0
	if _, err := s.Check(t.Context(), func(error) error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("%d complaints, %v; want one for each account", n, err)
	}
	n, enough := 0, errors.New("enough")
	if _, err := s.Check(t.Context(), func(error) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
		t.Errorf("%d complaints, %v; want one, and what was said to it", n, err)
	}
}

func overwrite(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
