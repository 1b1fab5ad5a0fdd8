// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// A Service is an outside service whose jobs steps wait for: the provider that [Job] names. An
// action submits a job; from then on the engine asks the service how it stands, acts upon its
// webhooks, and tells it when nobody waits for the job any more. What a webhook and an answer say
// may come in any order, twice or late: the first that ends the job counts.
//
// Its methods are called by many goroutines at once. Their context ends after 30 seconds.
type Service interface {
	// Poll asks how a job stands: 30 s, 90 s, 210 s and so on after its submission, and for all
	// jobs of the service together at most 10 times a second. An error says that it could not be
	// found out; if it is a *fault.Error with RetryAfterMS, the service is not asked about any
	// job before that, at most an hour.
	Poll(ctx context.Context, job *SubmittedJob) (JobState, error)

	// Receive checks the signature of a webhook and says which job it is about. It takes the same
	// time whatever is wrong, and compares with crypto/subtle or crypto/hmac.
	Receive(header http.Header, body []byte) (Webhook, error)

	// Read says what a webhook that Receive has accepted tells about its job. It may ask the
	// service, if its webhooks only say that there is something to know.
	Read(ctx context.Context, job *SubmittedJob, body []byte) (JobState, error)

	// Cancel tells the service that nobody waits for a job any more. It returns nil if the job
	// has ended, is not known, or cannot be cancelled. After an error it is called again, until
	// a day after the job would have expired.
	Cancel(ctx context.Context, job *SubmittedJob) error
}

// A Follower is a Service whose jobs can be followed while they go on, such as the answers of
// language models. The text that a job makes is shown as node.stream.delta, and its end is known at
// once. At most 64 jobs are followed at a time; all are asked about, too, and the first that says how
// a job has ended counts.
//
// What was shown of a job is not shown again, also after a restart of the server. Where moderators
// look at the output of the step, a sentence is shown once it has passed; one that was flagged, and
// what follows it, is not shown, and the job goes on. At most 4 MiB of a job are shown.
type Follower interface {
	Service
	// Follow follows a job from behind the piece with a cursor; "" = from its beginning. It calls
	// emit with each piece, in order, and returns when the job has ended, with its Result. Without
	// one, and without an error, the job goes on, and Poll finds out how it ends.
	//
	// After an error it is called again 1 s, 2 s, 4 s and so on later, unless it is a *fault.Error
	// with one of the codes StepTimeout (nothing has come for too long), HTTPStatus and
	// ProviderNotConfigured, and until 5 calls in a row have had no piece. A job that is not followed
	// any more may be when Poll has found that it goes on. The context ends after an hour, or when the
	// job has ended in another way.
	Follow(ctx context.Context, job *SubmittedJob, after string, emit func(Piece)) (JobState, error)
}

// A Piece is what the stream of a job adds to what the job has made.
type Piece struct {
	Cursor string // by which the stream goes on behind the piece; "" = from the beginning
	Text   string // follows the text of the pieces before it
}

// A SubmittedJob is a job that a step waits for, or has waited for.
type SubmittedJob struct {
	Provider string
	ID       string
	Handle   json.RawMessage // that of Job
	Account  string          // of the run
	Run      string
	Step     string    // as in Task
	Until    time.Time // when it expires
}

// A JobState is how a job stands.
type JobState struct {
	// Result is set when the job has ended. It returns what the step gets, or why the job has
	// failed, as the Run of an action does: the same contracts, limits and prices apply, and it
	// may store files, but not return another job. Its task is that of the step. An error that wraps ErrUnsettled means that
	// it could not find out; it is called again. nil = the job goes on.
	Result Func
	// Preview is what a job that goes on has made so far: any value that encoding/json can
	// encode, at most 4 MiB. Texts in it that are addresses with data (data:…;base64,…) are stored
	// as files, and their hashes are shown in their place; what remains has at most 1 MiB, and all
	// previews of a job together 4 MiB, with 64 MiB in files. A preview that is the same as the one
	// before is not shown again, and where moderators look at the output of the step, one is shown
	// only if they pass it. nil = there is none.
	Preview any
}

// ErrUnsettled is wrapped by the error of a JobState's Result that could not find out how the
// job has ended.
var ErrUnsettled = errors.New("it is not known how the job has ended")

// A Webhook is about a job.
type Webhook struct {
	Job string // id of the job
	ID  string // of the delivery: the same if the service repeats it
}
