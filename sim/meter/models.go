// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// model passes the call of a model on to the real server, or refuses it. It notes when it came, what
// it was for (the first word of what was asked), and how many tokens it has used by the answer.
func (m *Meter) model(w http.ResponseWriter, r *http.Request) {
	provider := r.PathValue("provider")
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return // the caller has gone
	}
	s := m.begin(provider, firstWord(body), false)
	defer func() { m.end(s, r.Context().Err() != nil) }()
	m.mu.Lock()
	n := m.calls[provider]
	m.calls[provider]++
	m.mu.Unlock()
	if m.Slow > 0 {
		time.Sleep(m.Slow)
	}
	if m.Fails != nil && m.Fails(provider, n, time.UnixMicro(s.Begin)) {
		m.mu.Lock()
		s.Failed = true
		m.mu.Unlock()
		answer(w, http.StatusInternalServerError, map[string]any{"error": map[string]any{"message": "it fails", "type": "server_error"}})
		return
	}
	to := m.Models + strings.TrimPrefix(r.URL.Path, "/models/"+provider)
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", r.Header.Get("Authorization"))
	res, err := m.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	m.mu.Lock()
	s.Tokens = tokensIn(text)
	m.mu.Unlock()
	w.Header().Set("Content-Type", res.Header.Get("Content-Type"))
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(text)
}

// firstWord returns the first word of the last message of a request.
func firstWord(body []byte) string {
	var in struct {
		Messages []struct{ Content any }
	}
	if json.Unmarshal(body, &in) != nil || len(in.Messages) == 0 {
		return ""
	}
	last, ok := in.Messages[len(in.Messages)-1].Content.(string)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(last, " ")
	return word
}

var totalForm = regexp.MustCompile(`"total_tokens": ?([0-9]+)`)

// tokensIn returns how many tokens an answer says that it has used.
func tokensIn(text []byte) int64 {
	all := totalForm.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(all[len(all)-1][1]), 10, 64)
	return n
}
