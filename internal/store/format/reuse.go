// SPDX-License-Identifier: Apache-2.0

package format

// Rows are the rows that one commit encodes. The next commit uses their memory again.
type Rows[T any, R rowEncoder[T]] struct {
	rows []R
	used int
}

// A rowEncoder is a *Changes or an *Entries.
type rowEncoder[T any] interface {
	*T
	Reset()
	Data() []byte
}

// keptRows bounds how many rows keep their memory.
const keptRows = 16

// Next returns an empty row.
func (r *Rows[T, R]) Next() R {
	if r.used == len(r.rows) {
		r.rows = append(r.rows, new(T))
	}
	row := r.rows[r.used]
	r.used++
	row.Reset()
	return row
}

// Release ends the use of all rows. Large ones give up their memory, and so do many.
func (r *Rows[T, R]) Release() {
	if len(r.rows) > keptRows {
		r.rows = nil
	}
	for i, row := range r.rows {
		if Roomy(row.Data()) {
			r.rows[i] = new(T)
		}
	}
	r.used = 0
}

// Roomy reports whether a buffer is large, and much larger than its last content, so that it
// is better not used again.
func Roomy(b []byte) bool { return cap(b) > max(256<<10, 8*len(b)) }
