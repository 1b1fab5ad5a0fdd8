// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A client is one connection to a server. It writes requests that were encoded beforehand, so
// that the processor time of clients disturbs the server on the same machine little.
type client struct {
	net.Conn
	r    *bufio.Reader
	body []byte
	etag string // of the last answer
}

// dial connects to host:port.
func dial(ctx context.Context, address string) (*client, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &client{Conn: c, r: bufio.NewReaderSize(c, 8<<10)}, nil
}

// requestTime bounds a request, so that a server that hangs ends the benchmark.
const requestTime = time.Minute

// do sends a request. The body is valid until the next call.
func (c *client) do(request []byte) (status int, body []byte, err error) {
	if err := c.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return 0, nil, err
	}
	if _, err := c.Write(request); err != nil {
		return 0, nil, err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, nil, err
	}
	c.body, c.etag = c.body[:0], res.Header.Get("ETag")
	if n := int(res.ContentLength); n >= 0 {
		if cap(c.body) < n {
			c.body = make([]byte, 0, n)
		}
		c.body = c.body[:n]
		_, err = io.ReadFull(res.Body, c.body)
	} else {
		c.body, err = io.ReadAll(res.Body)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body) // up to the end of a chunked body
	}
	return res.StatusCode, c.body, err
}

// request encodes a request with a key and, if it has one, a body of JSON.
func request(method, path, key, body string) []byte {
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: bench\r\n", method, path)
	if key != "" {
		b = append(b, "Authorization: Bearer "+key+"\r\n"...)
	}
	if body != "" {
		b = append(b, "Content-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n"...)
	}
	return append(append(b, "\r\n"...), body...)
}

// A load is what many connections have measured together.
type load struct {
	mu    sync.Mutex
	times []time.Duration // of each request that was answered as wanted
	late  []time.Duration // of each request of pace that had to wait for no answer: how much later than due it was sent
	spent time.Duration   // from the first request to the last answer
	other map[int]int     // answers with another status -> how many
}

// press sends requests over n connections for a time, each the next as soon as the last
// is answered. next returns the i-th request of a connection; seen is told of every answer
// and must not keep the body. Answers that do not have the wanted status are counted.
func press(ctx context.Context, address string, n int, d time.Duration, want int, next func(conn, i int) []byte, seen func(conn int, body []byte)) (*load, error) {
	l := &load{other: map[int]int{}}
	conns := make([]*client, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close() // nothing is in flight
			}
		}
	}()
	for i := range conns {
		var err error
		if conns[i], err = dial(ctx, address); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	err := together(n, func(i int) error {
		var times []time.Duration
		other := map[int]int{}
		for k := 0; time.Since(began) < d && ctx.Err() == nil; k++ {
			request := next(i, k)
			at := time.Now()
			status, body, err := conns[i].do(request)
			if err != nil {
				return err
			}
			if status != want {
				other[status]++
				continue
			}
			times = append(times, time.Since(at))
			if seen != nil {
				seen(i, body)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.times = append(l.times, times...)
		for status, k := range other {
			l.other[status] += k
		}
		return nil
	})
	l.spent = time.Since(began)
	if err == nil {
		err = context.Cause(ctx)
	}
	return l, err
}

// rate is how many requests a second were answered as wanted.
func (l *load) rate() float64 { return float64(len(l.times)) / l.spent.Seconds() }

// all fails if an answer had another status than the wanted one.
func (l *load) all() error {
	if len(l.other) > 0 {
		return fmt.Errorf("answers with other statuses: %v; %d as wanted", l.other, len(l.times))
	}
	if len(l.times) == 0 {
		return fmt.Errorf("nothing was answered in %v", l.spent)
	}
	return nil
}
