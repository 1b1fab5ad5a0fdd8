// SPDX-License-Identifier: Apache-2.0

//go:build !small

package provider

import (
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/sse"
)

// A followed is a service whose jobs can be followed. It implements action.Follower.
type followed struct{ *jobService }

// keeps is the service as the keeper of jobs takes it.
func (j *jobService) keeps() action.Service {
	if j.api.Streams() {
		return followed{j}
	}
	return j
}

// Follow implements action.Follower. Cursors are the numbers of events.
func (j followed) Follow(ctx context.Context, of *action.SubmittedJob, after string, emit func(action.Piece)) (action.JobState, error) {
	job, err := j.jobOf(of)
	if err != nil {
		return action.JobState{}, err
	}
	last, err := strconv.ParseInt(after, 10, 64)
	if err != nil {
		last = -1
	}
	req, err := j.api.Follow(job, last)
	if err != nil {
		return action.JobState{}, err
	}
	resp, _, err := j.open(ctx, of.Account, req)
	if err != nil {
		return action.JobState{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if !isStream(resp) { // a service that speaks the protocol, without streams
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return action.JobState{}, err
		}
		st, err := j.api.State(job, body)
		return j.said(job, &st, err)
	}
	for events := sse.NewReader(resp.Body, 0); ; {
		got, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return action.JobState{}, endedEarly()
		case err != nil:
			return action.JobState{}, err
		case string(got.Data) == "[DONE]":
			continue
		}
		ev, err := j.api.Event(job, got.Data)
		if ev.Ended {
			return j.said(job, &ev.State, err)
		}
		if err != nil {
			return action.JobState{}, err
		}
		if ev.Number <= last {
			continue // it was read before the stream broke, or comes twice
		}
		last = ev.Number
		emit(action.Piece{Cursor: strconv.FormatInt(last, 10), Text: ev.Text})
	}
}
