// SPDX-License-Identifier: Apache-2.0

// Package effects records what programs under test do to the world: requests that a process of its own receives, and
// syncs to a file before it answers. That process is never killed, so its file is a record beside the journals.
//
// It decides nothing about what it records, and never repairs it.
package effects

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Variable makes a program that calls [Record] act as the recorder; its value is the file of effects.
const Variable = "ROUX_BENCH_RECORDER"

// An Effect is a request that the recorder received and synced before it answered.
type Effect struct {
	N      int    `json:"n"`
	Key    string `json:"key"` // Idempotency-Key
	Tag    string `json:"tag"` // the run, as the bench names it
	At     string `json:"at"`  // the step, as the journal names it
	Status int    `json:"status"`
}

// A Recorder stands for the outside world: a separate process that is never killed.
type Recorder struct {
	// URL is where it listens.
	URL  string
	cmd  *exec.Cmd
	in   io.Closer // its standard input; the recorder ends when it is closed
	file string
}

// Start starts this program as the recorder.
func Start(file string) (*Recorder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &Recorder{cmd: exec.Command(self), file: file}
	r.cmd.Env = append(os.Environ(), Variable+"="+file)
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the recorder did not print its address: %w", err), r.Stop())
	}
	r.URL = strings.TrimSpace(line)
	return r, nil
}

// Stop ends it.
func (r *Recorder) Stop() error { return errors.Join(r.in.Close(), r.cmd.Wait()) }

// Since reads the effects after an offset in the file, of runs whose tag begins with
// prefix.
func (r *Recorder) Since(offset int64, prefix string) (effects []Effect, err error) {
	f, err := os.Open(r.file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var e Effect
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", r.file, scan.Text(), err)
		}
		if strings.HasPrefix(e.Tag, prefix) {
			effects = append(effects, e)
		}
	}
	return effects, nil
}

// Size is the current size of the file.
func (r *Recorder) Size() (int64, error) {
	info, err := os.Stat(r.file)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Record is the main function of the recorder's process, which ends when its standard
// input is closed.
func Record(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w := &recorderServer{f: f, failed: map[string]int{}, kept: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effect", w.effect)
	mux.HandleFunc("GET /file", w.bytes)
	mux.HandleFunc("GET /text", w.text)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Println("http://" + ln.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return f.Close()
}

type recorderServer struct {
	mu     sync.Mutex
	f      *os.File
	n      int
	failed map[string]int // refusals per step
	kept   map[string]int // unanswered requests per step
}

// effect records and syncs a request, and only then answers. A step may ask to be
// refused a number of times, which is a failure with a known outcome. A step may also
// ask for its answer to be delayed after the effect.
func (w *recorderServer) effect(rw http.ResponseWriter, r *http.Request) {
	var e Effect
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	e.Key, e.Status = r.Header.Get("Idempotency-Key"), http.StatusOK
	fail, _ := strconv.Atoi(r.URL.Query().Get("fail"))
	ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
	if err := w.write(&e, fail); err != nil {
		fmt.Fprintln(os.Stderr, "recorder:", err)
		os.Exit(1) // any answer now would be false
	}
	if slow, _ := strconv.Atoi(r.URL.Query().Get("slow")); w.keeps(&e, slow) {
		<-r.Context().Done()
		return
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(e.Status)
	_ = json.NewEncoder(rw).Encode(map[string]any{"at": e.At})
}

// keeps reports whether the request is one of the first `slow` ones of its step. Such
// a request gets no answer until its client is gone.
func (w *recorderServer) keeps(e *Effect, slow int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	step := e.Tag + " " + e.At
	if w.kept[step] >= slow {
		return false
	}
	w.kept[step]++
	return true
}

func (w *recorderServer) write(e *Effect, fail int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step := e.Tag + " " + e.At; w.failed[step] < fail {
		w.failed[step]++
		e.Status = http.StatusServiceUnavailable
	}
	w.n++
	e.N = w.n
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := w.f.Write(append(line, '\n')); err != nil {
		return err
	}
	return w.f.Sync()
}

func (w *recorderServer) bytes(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/octet-stream")
	_, _ = rw.Write(content(r))
}

func (w *recorderServer) text(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/plain")
	_, _ = rw.Write(content(r))
}

// content is deterministic content of the requested size for a seed; it hardly
// compresses.
func content(r *http.Request) []byte {
	n, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
	n = min(max(n, 0), 4<<20)
	text := make([]byte, 0, n+2*sha256.Size)
	for i := 0; len(text) < n; i++ {
		sum := sha256.Sum256(fmt.Append(nil, r.URL.Query().Get("seed"), i))
		text = hex.AppendEncode(text, sum[:])
	}
	return text[:n]
}
