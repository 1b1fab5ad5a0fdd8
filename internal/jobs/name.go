// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// The name of the record of a job is
//
//	account/provider/TIME/DIGEST/action/version/service/pinned
//
// with the time of its submission and a digest of its id in hexadecimal. The names are an index, of
// which a million entries are read in about a second. So all that is needed at a start is there:
// which jobs there are, when their services are asked about them, and which slots they hold.

// A Class is what tells which slots a job holds, unless the configuration limits keys.
type Class struct {
	Account, Provider, Action, Version, Service, Pinned string // as in Job
}

// A Name is that of the record of a job.
type Name struct {
	Class
	Submitted int64 // UTC µs
	Digest    Digest
	// Whole is false if the parts of the class that the record has do not fit into the name.
	Whole bool
}

// A Digest stands for the id of a job.
type Digest [16]byte

func digest(s string) Digest {
	sum := sha256.Sum256([]byte(s))
	return Digest(sum[:16])
}

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// nameOf is the name of the record of a job that is submitted at a time.
func nameOf(j *Job, at int64) string {
	name := namePrefix(j.Account, j.Provider) + tail(at, digest(j.Provider+"/"+j.ID))
	class := "/" + j.Action + "/" + j.Version + "/" + j.Service + "/" + j.Pinned
	if len(name)+len(class) > store.MaxRecordText || strings.Count(class, "/") != 4 || strings.Contains(class, "\x00") {
		return name
	}
	return name + class
}

// tail is the part of a name behind the account and the provider, up to the class.
func tail(at int64, d Digest) string { return fmt.Sprintf("%016x/%s", at, d) }

const (
	timeDigits   = 16
	digestDigits = 32
)

func namePrefix(account, provider string) string {
	if provider == "" {
		return account + "/"
	}
	return account + "/" + provider + "/"
}

// ParseName reads the name of the record of a job.
func ParseName(s string) (n Name, ok bool) {
	front := s
	last := func() string {
		i := strings.LastIndexByte(front, '/')
		part := front[i+1:]
		front = front[:max(i, 0)]
		return part
	}
	n.Pinned, n.Service, n.Version, n.Action, n.Whole = last(), last(), last(), last(), true
	if !n.place(last(), last()) {
		front, n = s, Name{} // it has no class
		if !n.place(last(), last()) {
			return Name{}, false
		}
	}
	n.Provider, n.Account = last(), front
	return n, n.Provider != ""
}

// place reads what tells jobs of a class apart.
func (n *Name) place(digest, at string) bool {
	if len(at) != timeDigits || len(digest) != digestDigits {
		return false
	}
	submitted, err := strconv.ParseUint(at, 16, 63)
	if err != nil {
		return false
	}
	n.Submitted = int64(submitted)
	_, err = hex.Decode(n.Digest[:], []byte(digest))
	return err == nil
}

// eachName calls fn for the names of the records of jobs that can be read.
func eachName(ctx context.Context, records Records, fn func(*Name)) error {
	return store.EachRecord(ctx, records, store.RecordQuery{Kind: KindJob, NamesOnly: true}, func(r *store.Record) error {
		if n, ok := ParseName(r.Name); ok {
			fn(&n)
		}
		return nil
	})
}

// Count counts the jobs with a record that steps wait for, of the providers that are wanted. It reads only the
// records of those that are cancelled. whole is false if a class is not known by its name.
func Count(ctx context.Context, records Records, wanted func(provider string) bool) (count map[Class]int, whole bool, err error) {
	count, whole = map[Class]int{}, true
	add := func(n *Name, by int) {
		if wanted(n.Provider) {
			count[n.Class] += by
			whole = whole && n.Whole
		}
	}
	err = errors.Join(
		eachName(ctx, records, func(n *Name) { add(n, 1) }),
		store.EachRecord(ctx, records, store.RecordQuery{Kind: KindCancel, KeysOnly: true}, func(c *store.Record) error {
			r, err := records.Record(ctx, store.RecordKey{Kind: KindJob, ID: c.ID})
			if errors.Is(err, fault.RecordNotFound) || fault.CodeOf(err) == fault.StoreCorrupt {
				return nil
			}
			if n, ok := ParseName(r.Name); ok {
				add(&n, -1)
			}
			return err
		}),
	)
	return count, whole, err
}
