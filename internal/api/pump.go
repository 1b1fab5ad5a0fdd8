// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"sync"
	"time"
)

// A source is what a stream sends.
type source interface {
	// open begins to follow, and has wake called whenever next may find something new.
	open(ctx context.Context, wake func()) error
	// next adds to out what there is, and does not wait for more. It returns once it has added about maxUnsent bytes.
	// more reports whether it is called again at once, and done that nothing follows any more.
	next(ctx context.Context, out sink) (more, done bool, err error)
	// heartbeat adds a sign of life, if the stream has any.
	heartbeat(out sink)
	// reset adds a frame that tells why the stream ends early, and where to read on.
	reset(ctx context.Context, out sink, err error)
	// close ends what open has begun. It is called also if open failed.
	close()
}

// A pump sends a stream. While there is nothing to send it has no goroutine: one begins when
// its source has something, when a heartbeat is due, or when its context ends, and goes when
// all of that is sent. So a silent stream costs its state, and not a stack.
type pump struct {
	ctx   context.Context
	src   source
	out   sink
	every time.Duration // between heartbeats; 0 = there are none
	// ended is called when the stream has ended, with the reason, or nil after the last event.
	ended func(error)

	mu      sync.Mutex
	beat    *time.Timer // runs while nothing else does
	running bool        // a goroutine is in run, or a caller is in first
	again   bool        // something has come since it began to look
	silent  bool        // a heartbeat is due
	done    bool
	quit    func() bool // takes back the call of wake at the end of ctx
}

// first sends what there is already. It returns false if the stream has ended; otherwise
// nothing else sends until park is called.
func (p *pump) first() bool {
	p.running = true
	p.quit = context.AfterFunc(p.ctx, p.wake)
	err := p.out.flush() // the headers, before the journal is read
	if err == nil {
		if err = p.src.open(p.ctx, p.wake); err != nil {
			p.src.reset(p.ctx, p.out, err)
			_ = p.out.flush() // the error that ends the stream is reported
		}
	}
	if err != nil {
		p.finish(err)
		return false
	}
	return p.send()
}

// send sends until there is nothing left. It returns false if the stream has ended.
func (p *pump) send() bool {
	for {
		p.mu.Lock()
		silent := p.silent
		p.again, p.silent = false, false
		p.mu.Unlock()
		done, err := p.step(silent)
		if done || err != nil {
			p.finish(err)
			return false
		}
		p.mu.Lock()
		again := p.again
		p.mu.Unlock()
		if !again {
			return true
		}
	}
}

// step sends what the source has.
func (p *pump) step(silent bool) (done bool, err error) {
	for more := true; more && err == nil && !done; {
		if err = context.Cause(p.ctx); err == nil {
			more, done, err = p.src.next(p.ctx, p.out)
		}
		if err != nil {
			p.src.reset(p.ctx, p.out, err)
			_ = p.out.flush() // the error that ends the stream is reported
			return false, err
		}
		if silent && p.out.unsent() == 0 && !done {
			p.src.heartbeat(p.out)
		}
		err = p.out.flush()
	}
	return done, err
}

// park lets the goroutine of the caller go. Another one begins when something comes.
func (p *pump) park() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.again {
		go p.run()
		return
	}
	p.running = false
	switch {
	case p.every == 0:
	case p.beat == nil:
		p.beat = time.AfterFunc(p.every, p.due)
	default:
		p.beat.Reset(p.every)
	}
}

// run sends what there is and parks. The caller has set running.
func (p *pump) run() {
	if p.send() {
		p.park()
	}
}

// wake has what there is sent.
func (p *pump) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = true
	if !p.running && !p.done {
		p.running = true
		if p.beat != nil {
			p.beat.Stop()
		}
		go p.run()
	}
}

// due sends a heartbeat, on the goroutine of the timer.
func (p *pump) due() {
	p.mu.Lock()
	if p.running || p.done {
		p.mu.Unlock()
		return // it has something better to send
	}
	p.running, p.silent = true, true
	p.mu.Unlock()
	p.run()
}

// finish ends the stream.
func (p *pump) finish(err error) {
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	p.quit()
	p.src.close()
	p.ended(err)
}
