// SPDX-License-Identifier: Apache-2.0

package slots

// A Limit bounds how many attempts run at once.
type Limit[H any] struct {
	reason string
	slots  int
	used   int
	queues map[string]*accountQueue[H]
	turn   *accountQueue[H] // the account to be served next; queues that are not empty form a circle
	last   string           // the account served last
}

// An accountQueue holds one account's requests at a limit.
type accountQueue[H any] struct {
	account    string
	queue      []*Request[H]
	head       int
	prev, next *accountQueue[H] // nil when not in the circle
}

func newLimit[H any](reason string, slots int) *Limit[H] {
	return &Limit[H]{reason: reason, slots: slots, queues: map[string]*accountQueue[H]{}}
}

func (g *Limit[H]) pass(k *Request[H]) {
	g.used++
	k.passed++
	g.last = k.Account
}

func (g *Limit[H]) enqueue(k *Request[H]) {
	k.at = g
	q := g.queues[k.Account]
	if q == nil {
		q = &accountQueue[H]{account: k.Account}
		g.queues[k.Account] = q
	}
	q.queue = append(q.queue, k)
	if q.next != nil {
		return
	}
	if g.turn == nil {
		q.prev, q.next, g.turn = q, q, q
		return
	}
	// A new account joins the circle last, but in front of the account that was
	// served most recently, which has just had its turn.
	end := g.turn
	if l := g.queues[g.last]; l != nil && l != q {
		end = l
		if g.turn == l {
			g.turn = q
		}
	}
	q.prev, q.next = end.prev, end
	q.prev.next, end.prev = q, q
}

// dequeue removes and returns the next request of the account whose turn it is,
// passing over those that were withdrawn; nil when none waits.
func (g *Limit[H]) dequeue() *Request[H] {
	for g.turn != nil {
		q := g.turn
		var k *Request[H]
		for q.head < len(q.queue) && k == nil {
			k = q.queue[q.head]
			q.queue[q.head] = nil
			q.head++
			k.at = nil
			if k.withdrawn {
				k = nil
			}
		}
		g.turn = q.next
		if q.head == len(q.queue) {
			g.leave(q)
		} else if q.head > 64 && q.head*2 > len(q.queue) {
			n := copy(q.queue, q.queue[q.head:])
			clear(q.queue[n:]) // or their runs could not be freed
			q.queue, q.head = q.queue[:n], 0
		}
		if k != nil {
			return k
		}
	}
	return nil
}

// leave takes an account without requests out of the circle and forgets its queue, so
// that an account that is gone costs nothing.
func (g *Limit[H]) leave(q *accountQueue[H]) {
	if q.next == q {
		g.turn = nil
	} else {
		q.prev.next, q.next.prev = q.next, q.prev
	}
	delete(g.queues, q.account)
}
