// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/fault"
)

// Fatal reports whether an error of a commit means that no later one can succeed.
func Fatal(err error) bool {
	switch fault.CodeOf(err) {
	case fault.StoreFailed, fault.StaleEpoch:
		return true
	}
	return false
}

// Transient reports whether an error of a read is about the current condition of the store
// and not about a run, so that trying again may help.
func Transient(err error) bool {
	switch fault.CodeOf(err) {
	case fault.ServiceUnavailable, fault.StoreFailed, fault.StoreFull:
		return true
	}
	return errors.Is(err, context.Canceled)
}

// Permanent reports whether a run cannot be read however often that is tried.
func Permanent(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Quarantined, fault.StoreCorrupt, fault.RunNotFound:
		return true
	}
	return false
}

// HeadWritten reports whether the store holds a transition without events. It matters
// only for a release from quarantine, which a caller waits for, and for what became of an
// external job, which is written again; compactions and marks count as written.
func HeadWritten(ctx context.Context, st interface {
	Head(ctx context.Context, key Key) (Head, error)
}, t *Transition) (bool, error) {
	if t.Head == nil || t.Head.Quarantine != "" {
		return len(t.Records) == 0, nil
	}
	head, err := st.Head(ctx, t.Key)
	if Transient(err) {
		return false, err
	}
	return err == nil && head.Quarantine == "", nil
}
