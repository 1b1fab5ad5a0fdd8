// SPDX-License-Identifier: Apache-2.0

package main

// A receipt is an invented bill.
type receipt struct {
	name, title, date string
	lines             [][]string
	total             string
}

var receipts = []receipt{
	{"bakery", "Corner Bakery", "2026-03-02", [][]string{{"Item", "Amount"}, {"Rolls", "4.80"}, {"Coffee", "7.60"}}, "12.40"},
	{"hotel", "Hotel at the Sound", "2026-03-03", [][]string{{"Item", "Amount"}, {"Two nights", "178.00"}, {"Breakfast", "24.00"}}, "202.00"},
	{"taxi", "Harbour Taxi", "2026-03-04", [][]string{{"Item", "Amount"}, {"Pier to station", "18.50"}}, "18.50"},
}

func (r receipt) blocks() []block {
	return []block{
		{kind: title, text: r.title},
		{text: "Receipt of " + r.date},
		{kind: table, rows: r.lines},
		{kind: section, text: "Total: " + r.total + " EUR"},
		{text: "Thank you. Please keep this receipt for your books."},
	}
}
