// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/roux-engine/roux/internal/jsonx"
)

const (
	// maxMessage bounds one message. A document has at most 16 MiB, and JSON may need six bytes for one.
	maxMessage = 96 << 20
	maxHeader  = 4 << 10
)

// A message is a request, a notification or an answer.
type message struct {
	Version string           `json:"jsonrpc"`
	ID      *json.RawMessage `json:"id,omitempty"`
	Method  string           `json:"method,omitempty"`
	Params  json.RawMessage  `json:"params,omitempty"`
	Result  json.RawMessage  `json:"result,omitempty"`
	Error   *rpcError        `json:"error,omitempty"`
}

// An rpcError is why a request has no result.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

// The codes of errors.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeParams         = -32602
	codeInternal       = -32603
	codeNotInitialized = -32002
	codeRequestFailed  = -32803
	codeCancelled      = -32800
	codeModified       = -32801
)

func failed(code int, format string, args ...any) *rpcError {
	return &rpcError{code, fmt.Sprintf(format, args...)}
}

// A conn reads and writes messages.
type conn struct {
	in *bufio.Reader

	mu  sync.Mutex
	out io.Writer
	err error // of the first write that failed
}

func newConn(in io.Reader, out io.Writer) *conn { return &conn{in: bufio.NewReader(in), out: out} }

// errFrame is a message whose end is unknown, so that nothing behind it can be read.
var errFrame = errors.New("malformed header")

// read returns the next message. An error of type rpcError is of this message alone.
func (c *conn) read() (*message, error) {
	length, err := c.header()
	if err != nil {
		return nil, err
	}
	if length > maxMessage {
		if _, err := io.CopyN(io.Discard, c.in, length); err != nil {
			return nil, err
		}
		return nil, failed(codeInvalidRequest, "a message of %d bytes; the limit is %d", length, maxMessage)
	}
	// A header can promise more than follows, so the buffer grows with what arrives.
	body, err := io.ReadAll(io.LimitReader(c.in, length))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) < length {
		return nil, io.ErrUnexpectedEOF
	}
	m := &message{}
	if err := decode(body, m); err != nil {
		return nil, failed(codeParse, "%v", err)
	}
	if m.Version != "2.0" {
		return nil, failed(codeInvalidRequest, `a message without "jsonrpc": "2.0"`)
	}
	return m, nil
}

// header reads the header of a message and returns the length of its body.
func (c *conn) header() (int64, error) {
	length, size := int64(-1), 0
	for {
		line, err := c.in.ReadSlice('\n')
		if size += len(line); size > maxHeader || errors.Is(err, bufio.ErrBufferFull) {
			return 0, fmt.Errorf("%w: it has more than %d bytes", errFrame, maxHeader)
		}
		if errors.Is(err, io.EOF) && size > 0 {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		name, value, _ := strings.Cut(text, ":")
		if !strings.EqualFold(strings.TrimSpace(name), "Content-Length") {
			continue
		}
		if length, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil || length < 0 {
			return 0, fmt.Errorf("%w: %.80q", errFrame, text)
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("%w: it has no Content-Length", errFrame)
	}
	return length, nil
}

// decode decodes JSON that has been checked against limits. Fields that v does not have are left out, because
// clients send more than a server uses.
func decode(data []byte, v any) error {
	if err := jsonx.Valid(data, jsonx.Limits{Bytes: maxMessage + 1, Tokens: 1 << 20}); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// write sends a message.
func (c *conn) write(m *message) {
	m.Version = "2.0"
	body, err := jsonx.Marshal(m)
	if err != nil {
		return // messages hold texts and numbers, which JSON has
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		_, c.err = fmt.Fprintf(c.out, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// answer sends the result of a request, or why there is none.
func (c *conn) answer(id *json.RawMessage, result any, err error) {
	m := &message{ID: id}
	if err == nil {
		m.Result, err = jsonx.Marshal(result)
	}
	if err != nil {
		var e *rpcError
		if !errors.As(err, &e) {
			e = failed(codeInternal, "%v", err)
		}
		m.Result, m.Error = nil, e
	}
	c.write(m)
}

// notify sends a notification.
func (c *conn) notify(method string, params any) {
	raw, err := jsonx.Marshal(params)
	if err != nil {
		return // as in write
	}
	c.write(&message{Method: method, Params: raw})
}
