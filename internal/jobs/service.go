// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"net/http"

	"github.com/roux-engine/roux/action"
)

// A Service is an outside service as the keeper of jobs sees it. Its methods are called by
// many goroutines at once. Their context ends after a while.
type Service interface {
	// Poll asks how a job stands. An error says that it could not be found out; if it is a
	// *fault.Error with RetryAfterMS, the service is not asked about any job before that.
	Poll(ctx context.Context, job *Job) (State, error)

	// Receive checks the signature of a webhook and says which job it is about. It does the
	// same amount of work whatever is wrong.
	Receive(header http.Header, body []byte) (Received, error)

	// Read says what a webhook that Receive has accepted tells about its job. A service whose
	// webhooks only say that there is something to know asks.
	Read(ctx context.Context, job *Job, body []byte) (State, error)

	// Cancel tells the service that nobody waits for a job any more. It returns nil if the job
	// has ended, or if the service cannot cancel.
	Cancel(ctx context.Context, job *Job) error
}

// A State is how a job stands.
type State struct {
	// Result is set when the job has ended. It returns its output, or why it has failed. What
	// it returns is checked, limited and kept as what an action returns is; it may read what
	// the service keeps, and store files. An error that wraps ErrUnsettled means that it
	// could not find out, and is to be called again.
	Result action.Func
}

// A Received webhook is about a job.
type Received struct {
	Job string // its id
	ID  string // of the delivery: the same if it is repeated
}
