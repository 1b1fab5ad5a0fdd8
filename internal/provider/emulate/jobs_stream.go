// SPDX-License-Identifier: Apache-2.0

package emulate

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/sse"
)

// The modes of streams of jobs, which only OpenAI's protocol has.
const (
	Cut     = "cut"     // the connection breaks after every third piece of text
	Doubled = "doubled" // a stream that goes on begins with the last events once more
	Stalled = "stalled" // nothing comes after half of the text, and the connection stays
	Lagging = "lagging" // the end of the job comes in the stream as long after it as the webhook in mode Late
)

// streamPause is how long a stream waits before it looks again what there is.
const streamPause = 5 * time.Millisecond

// A streamEvent is one of a response.
type streamEvent struct {
	number int
	body   object
	delta  bool
}

// eventsOf returns the events of a response up to now. Their numbers do not depend on when that is.
func (p openAI) eventsOf(j *job, late time.Duration) (list []streamEvent) {
	var in responseRequest
	_ = json.Unmarshal(j.input, &in) // it was decoded when the job was accepted
	add := func(number int, kind string, fields object) {
		fields["type"], fields["sequence_number"] = kind, number
		list = append(list, streamEvent{number, fields, strings.HasSuffix(kind, ".delta")})
	}
	was := *j
	was.state = JobQueued
	add(0, "response.created", object{"response": p.show(&was)})
	add(1, "response.queued", object{"response": p.show(&was)})
	if j.state == JobQueued {
		return list
	}
	was.state = JobRunning
	add(2, "response.in_progress", object{"response": p.show(&was)})
	pieces := strings.SplitAfter(p.said(j, &in), " ")
	part := func(fields object) object {
		fields["item_id"], fields["output_index"], fields["content_index"] = "msg_"+strings.TrimPrefix(j.id, "resp_"), 0, 0
		return fields
	}
	done := j.state == JobDone || j.state == JobIncomplete
	for i, piece := range pieces {
		at := j.started.Add((j.after - j.after/4) * time.Duration(i) / time.Duration(len(pieces)+1))
		if !done && (!j.live() || time.Now().Before(at)) {
			break
		}
		add(3+i, "response.output_text.delta", part(object{"delta": piece, "logprobs": []object{}, "obfuscation": "x"}))
	}
	if j.live() || j.mode == Lagging && time.Since(j.ended) < late {
		return list
	}
	end := 3 + len(pieces)
	if done {
		add(end, "response.output_text.done", part(object{"text": strings.Join(pieces, "")}))
	}
	add(end+1, "response."+responseStates[j.state], object{"response": p.show(j)})
	return list
}

// said returns the text of the answer of a job.
func (openAI) said(j *job, in *responseRequest) string {
	text := in.text(j.result)
	if j.outcome == JobIncomplete {
		text = strings.ToValidUTF8(text[:min(len(text), in.MaxTokens*4)], "")
	}
	return text
}

// stream sends the events of a response behind one, until it has ended.
func (s *Jobs) stream(w http.ResponseWriter, r *http.Request, p openAI, id string, after int) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	deltas := 0
	if j := s.look(p, id); j != nil && j.mode == Doubled {
		after = max(after-2, -1)
	}
	for {
		j := s.look(p, id)
		if j == nil {
			return
		}
		for _, ev := range p.eventsOf(j, s.cfg.Late) {
			if ev.number <= after {
				continue
			}
			if j.mode == Stalled && ev.number >= 3+half(p, j) {
				<-r.Context().Done()
				return
			}
			data, err := json.Marshal(ev.body)
			if err != nil {
				return // it was made of JSON
			}
			if _, err = w.Write(sse.Append(nil, 0, ev.body["type"].(string), data)); err != nil {
				return
			}
			if after = ev.number; !ev.delta {
				continue
			}
			if deltas++; j.mode == Cut && deltas == 3 {
				_ = out.Flush()
				panic(http.ErrAbortHandler) // closes the connection
			}
		}
		if out.Flush() != nil || !j.live() && (j.mode != Lagging || time.Since(j.ended) >= s.cfg.Late) {
			return
		}
		select {
		case <-time.After(streamPause):
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// half is how many pieces a stream has that stalls.
func half(p openAI, j *job) int {
	var in responseRequest
	_ = json.Unmarshal(j.input, &in)
	return (strings.Count(p.said(j, &in), " ") + 1) / 2
}

// look returns a copy of a job, or nil.
func (s *Jobs) look(p jobProtocol, id string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.find(p, id); j != nil {
		return j.copy()
	}
	return nil
}

// follow answers a request for the stream of a job.
func (s *Jobs) follow(w http.ResponseWriter, r *http.Request, p openAI, j *job) {
	after := -1
	if text := r.URL.Query().Get("starting_after"); text != "" {
		var err error
		if after, err = strconv.Atoi(text); err != nil || after < 0 {
			fail(w, p, http.StatusBadRequest, "starting_after is no number of an event")
			return
		}
	}
	if !j.streamed {
		fail(w, p, http.StatusBadRequest, "the response was not created with stream=true")
		return
	}
	s.mu.Lock()
	if of := s.find(p, j.id); of != nil {
		of.streams++
	}
	s.mu.Unlock()
	s.stream(w, r, p, j.id, after)
}
