package message

import "vitrine/wire/http1"

// readHTTP1 reads HTTP/1 messages. It delivers a message at its end, after its body was
// searched for identities.
func (r *reading) readHTTP1(x *half, data []byte) (n int, err error) {
	d := &x.http1
	for {
		k, event, err := d.Next(data[n:])
		n += k
		if err != nil {
			return n, err
		}
		switch event {
		case http1.More:
			return n, nil
		case http1.Head:
			r.headHTTP(x, d)
		case http1.Body:
			bodyHTTP(x.slot, &x.scanned, d.Data)
			x.body += len(d.Data)
		case http1.End:
			r.endHTTP(x)
			if n == len(data) {
				return n, nil
			}
		case http1.Tunnel: // another protocol follows: perhaps HTTP/2
			r.retry(x.conn)
			return n - k, nil
		}
	}
}

// retry starts the recognition of a connection's protocol again.
func (r *reading) retry(c *conn) {
	c.protocol, c.tries = Unknown, 0
	for i := range c.halves {
		x := &c.halves[i]
		r.abandon(x)
		x.begun, x.lost, x.http1 = false, false, http1.Decoder{}
	}
}

// headHTTP begins a message.
func (r *reading) headHTTP(x *half, d *http1.Decoder) {
	m, c := &d.Message, x.conn
	if m.IsInterim() && m.Status != 101 {
		return
	}
	r.abandon(x)
	x.scanned, x.body = 0, 0
	if m.Request {
		c.client = x.side
	} else {
		c.client = 1 - x.side
	}
	o := r.origin(x)
	s := r.slot(&o, HTTP)
	s.m.Bytes = len(m.Octets)
	x.slot = s
	if m.Request {
		s.m.Name = r.resource(s, m.Method, m.Target)
		s.state(m.Method, m.Target)
		s.part, s.key = opens, c.ask(x.at, string(m.Method) == "HEAD")
		return
	}
	status(r, s, m.Status)
	key, bodiless := c.answer(x.at)
	if s.key = key; bodiless {
		d.Answer([]byte("HEAD"))
	}
}

// status makes a slot an HTTP answer.
func status(r *reading, s *slot, status int) {
	s.part, s.m.Kind, s.status = only, Answer, status
	s.m.Failed = status >= 400 && status != 401 // a challenge is not a failure: it asks for another round
	if status >= 400 {
		s.m.Cause = r.code(status)
	}
}

// ask records a request, and returns the key of its exchange. A request that was delayed by
// a gap takes the key of the first stray answer after it.
func (c *conn) ask(at int64, bodiless bool) uint64 {
	for i, s := range c.strays[:c.stray] {
		if s.at >= at {
			c.stray = copy(c.strays[:], c.strays[i+1:c.stray])
			return s.key
		}
	}
	c.stray = 0
	bit := uint64(1) << (c.requests % pending)
	c.bodiless &^= bit
	if bodiless {
		c.bodiless |= bit
	}
	c.requests++
	return join(c.link, c.requests)
}

// answer returns the key of the exchange of the next answer, and whether the answer has no
// body regardless of its header.
func (c *conn) answer(at int64) (key uint64, bodiless bool) {
	if c.answers == c.requests { // its request is lost or delayed
		key = join(c.link, uint64(at)|1<<63)
		if c.stray < maxStray {
			c.strays[c.stray] = stray{at, key}
			c.stray++
		}
		return key, false
	}
	bodiless = c.requests-c.answers <= pending && c.bodiless>>(c.answers%pending)&1 != 0
	c.answers++
	return join(c.link, c.answers), bodiless
}

// bodyHTTP searches the next bytes of a body for identities.
func bodyHTTP(s *slot, scanned *int, data []byte) {
	if s == nil {
		return
	}
	s.m.Bytes += len(data)
	if room := maxScan - *scanned; room > 0 {
		data = data[:min(room, len(data))]
		*scanned += len(data)
		s.scan(data)
		if s.batched {
			s.body = append(s.body, data...)
		}
	}
}

// endHTTP delivers a message.
func (r *reading) endHTTP(x *half) {
	s := x.slot
	if s == nil {
		return
	}
	x.slot = nil
	s.m.Time = x.at
	s.written(x.body)
	r.commit(s)
}

// written sets the size of what a request writes to a store: n bytes, or the sizes in its
// batch.
func (s *slot) written(n int) {
	if s.batched {
		s.batch(s.body)
		return
	}
	for i := range s.m.Access {
		if s.m.Access[i].Write {
			s.m.Access[i].Bytes = n
		}
	}
}
