// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRemotePage(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(bin, "roux")); err != nil { // the test binary is roux by that name
		t.Fatal(err)
	}
	runServed(t, freeAddress(t), servedPage{name: "remote", least: 9, first: "PATH=" + bin + ":$PATH; HOME=$PWD; XDG_CONFIG_HOME=$PWD; export PATH HOME XDG_CONFIG_HOME\n"})
}
