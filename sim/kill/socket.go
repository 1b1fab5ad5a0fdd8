// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

// followSocket follows every run over one socket after the other.
func (w *watch) followSocket(ctx context.Context, started <-chan struct{}) error {
	of, ended := map[string]*sequence{}, map[string]bool{}
	var p patience
	for {
		last := false
		select {
		case <-started:
			last = true
		default:
		}
		runs, _ := w.s.known()
		open := 0
		for _, id := range runs {
			if of[id] == nil {
				of[id] = w.sequenceOf(bySocket, id)
			}
			if !ended[id] {
				open++
			}
		}
		if last && open == 0 {
			return nil
		}
		some, err := w.socket(ctx, &p, of, ended)
		if err != nil {
			return err
		}
		p.brought(some)
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// socket follows runs over one socket until it is cut. some reports whether it had events.
func (w *watch) socket(ctx context.Context, p *patience, of map[string]*sequence, ended map[string]bool) (some bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.time(50+w.draw(400))) // so that runs that were started since are followed too
	defer cancel()
	header := http.Header{"Authorization": {"Bearer " + w.s.key}}
	conn, _, err := websocket.Dial(ctx, strings.Replace(w.s.url, "http", "ws", 1)+"/v1/socket", &websocket.DialOptions{HTTPClient: w.client(p), HTTPHeader: header})
	if err != nil {
		return false, nil
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(4 << 20)
	followed, furthest := 0, uint64(0)
	for id, q := range of {
		if ended[id] || followed == 50 {
			continue
		}
		followed++
		text := fmt.Sprintf(`{"type":"subscribe","runId":%q,"afterEventId":%d,"coalesce":false}`, id, q.last())
		if conn.Write(ctx, websocket.MessageText, []byte(text)) != nil {
			return false, nil
		}
		furthest = max(furthest, q.last())
	}
	w.accepted(p, bySocket, furthest)
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return some, nil
		}
		var m struct {
			Type    string
			RunID   string
			EventID uint64
			Code    string
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return some, fmt.Errorf("%s: the socket has %q: %w", w.s.name, data, err)
		}
		switch {
		case m.Type == "error" && m.Code != "STOPPING":
			return some, fmt.Errorf("%s: the socket has an error: %s", w.s.name, data)
		case m.Type == "ended" && of[m.RunID] != nil && !ended[m.RunID]:
			w.s.problem("%s has nothing after event %d, which has not ended it", of[m.RunID], of[m.RunID].last())
			return some, nil
		case m.EventID == 0:
			continue
		}
		w.s.frames[bySocket].Add(1)
		q := of[m.RunID]
		if q == nil {
			return some, fmt.Errorf("%s: the socket has a run that it does not follow: %s", w.s.name, data)
		}
		l, err := w.shown(q, frame{m.EventID, string(data)})
		if err != nil {
			return some, err
		}
		some, ended[m.RunID] = true, ends(l.Type)
		if ended[m.RunID] { // it may have been the last one
			return some, nil
		}
	}
}
