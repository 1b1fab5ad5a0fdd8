// SPDX-License-Identifier: Apache-2.0

package term

import (
	"strings"
	"testing"
)

// TestFitTable: columns are cut in the order given, never below what can be read,
// and characters of two columns count as two.
func TestFitTable(t *testing.T) {
	rows := func() [][]string {
		return [][]string{{"ID", "NAME", "NOTE"}, {"run_0123456789", strings.Repeat("n", 30), strings.Repeat("x", 40)}, {"b", "漢字漢字漢字漢字", "y"}}
	}
	for _, tt := range []struct {
		columns int
		want    string
	}{
		{200, "run_0123456789  " + strings.Repeat("n", 30) + "  " + strings.Repeat("x", 40)},
		{87, "run_0123456789  " + strings.Repeat("n", 30) + "  " + strings.Repeat("x", 38) + "…"},
		{59, "run_0123456789  " + strings.Repeat("n", 28) + "…  " + strings.Repeat("x", 11) + "…"},
		{42, "run_0123456789  " + strings.Repeat("n", 11) + "…  " + strings.Repeat("x", 11) + "…"},
	} {
		lines := strings.Split(FitTable(rows(), tt.columns, 2, 1), "\n")
		if lines[1] != tt.want {
			t.Errorf("%d columns:\n%s, want\n%s", tt.columns, lines[1], tt.want)
		}
	}
	if got := strings.Split(FitTable(rows(), 42, 2, 1), "\n")[2]; got != "b               漢字漢字漢…   y" {
		t.Errorf("got %q", got)
	}
	// On an even narrower terminal each row becomes two lines.
	narrow := "ID\n  NAME            NOTE\nrun_0123456789\n  " + strings.Repeat("n", 13) + "…  " + strings.Repeat("x", 11) + "…\nb\n  漢字漢字漢字…   y\n"
	if got := FitTable(rows(), 30, 2, 1); got != narrow {
		t.Errorf("got\n%s, want\n%s", got, narrow)
	}
	// A row of one cell spans the columns; ^0 cuts the beginning of the first.
	spanning := [][]string{{"each[10].work", "done", "1"}, {"each[…]  20 more items"}}
	if got, want := FitTable(spanning, 20, ^0), "each[10].work\n  done  1\n…h[…]  20 more items\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := FitTable(spanning, 21, ^0), "…ch[10].work  done  1\neach[…]  20 more ite…\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTable(t *testing.T) {
	got := Table([][]string{{"A", "B", "C"}, {"one", "é", "x"}, {"two", "long", ""}})
	if want := "A    B     C\none  é     x\ntwo  long\n"; got != want {
		t.Errorf("table gives\n%s\nwant\n%s", got, want)
	}
}
