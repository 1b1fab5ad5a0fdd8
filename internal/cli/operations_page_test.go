// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestOperationsPage(t *testing.T) { runPage(t, "operations") }

// The command of the systemd unit is one that this binary takes, with the settings that the
// unit gives it.
func TestUnitStarts(t *testing.T) {
	unit, err := os.ReadFile("../../supply/roux.service")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/roux (.*)$`).FindSubmatch(unit)
	environment := regexp.MustCompile(`(?m)^Environment=(.*)$`).FindSubmatch(unit)
	if line == nil || environment == nil {
		t.Fatal("the unit starts nothing")
	}
	dir := shortDir(t)
	for _, word := range strings.Fields(string(environment[1])) {
		name, value, _ := strings.Cut(word, "=")
		t.Setenv(name, strings.NewReplacer("/etc", dir, "/var/lib/roux", dir).Replace(value))
	}
	if err := os.Mkdir(dir+"/roux", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/roux/config.yaml", []byte("concurrency: 7\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.NewReplacer("/var/lib/roux", dir+"/data", ":7420", ":0", ":7421", ":0").Replace(string(line[1])))
	var out, log strings.Builder
	if code := Main(t.Context(), append(args, "--check"), strings.NewReader(""), &out, &log, nil); code != 0 || !strings.Contains(out.String(), "everything is fine") {
		t.Errorf("%v ends with %d: %s%s", args, code, out.String(), log.String())
	}
	out.Reset()
	if code := Main(t.Context(), []string{"config", "get", "concurrency"}, strings.NewReader(""), &out, &log, nil); code != 0 || strings.TrimSpace(out.String()) != "7" {
		t.Errorf("the settings of the unit are not read: %d %s%s", code, out.String(), log.String())
	}
}
