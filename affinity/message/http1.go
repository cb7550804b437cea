package message

import "vitrine/wire/http1"

// readHTTP1 reads HTTP/1 messages. It delivers a message at its end, after its body was
// searched for identities.
func (r *reading) readHTTP1(x *half, data []byte) (n int, err error) {
	x.needOrdered()
	d := &x.http1
	for {
		k, event, err := d.Next(data[n:])
		n += k
		if err != nil {
			return max(n, 1), err
		}
		switch event {
		case http1.More:
			return n, nil
		case http1.Head:
			if r.headHTTP(x, d) { // another protocol follows in both directions: perhaps HTTP/2
				r.retry(x.conn)
				return n, nil
			}
		case http1.Body:
			bodyHTTP(x.slot, &x.scanned, d.Data)
			x.body += len(d.Data)
		case http1.End:
			r.endHTTP(x)
			if n == len(data) {
				return n, nil
			}
		}
	}
}

// retry starts the recognition of a connection's protocol again.
func (r *reading) retry(c *conn) {
	c.protocol, c.tries = Unknown, 0
	for i := range c.halves {
		x := &c.halves[i]
		r.abandon(x)
		x.begun, x.lost = false, false
		x.restart()
	}
}

// headHTTP begins a message. It reports whether the message is the last one of HTTP/1 on
// its connection: see http1.Decoder.Tunnels.
func (r *reading) headHTTP(x *half, d *http1.Decoder) (last bool) {
	m, c := &d.Message, x.conn
	if m.IsInterim() && m.Status != 101 {
		return false
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
		s.part, s.key = opens, c.ask(x.at, m.Method)
		return false
	}
	status(r, s, m.Status)
	key, method := c.answer(x.at)
	s.key = key
	d.Answer([]byte(method))
	return d.Tunnels()
}

// status makes a slot an HTTP answer.
func status(r *reading, s *slot, status int) {
	s.part, s.m.Kind, s.status = only, Answer, status
	s.m.Failed = status >= 400 && status != 401 && status != 407 // a challenge is not a failure: it asks for another round
	if status >= 400 {
		s.m.Cause = r.code(s.m.Protocol, status)
	}
}

// ask records a request, and returns the key of its exchange. A request that was delayed by
// a gap takes the key of the first stray answer after it. The method is nil for Redis.
func (c *conn) ask(at int64, method []byte) uint64 {
	for i, s := range c.strays[:c.stray] {
		if s.at >= at {
			c.stray = copy(c.strays[:], c.strays[i+1:c.stray])
			return s.key
		}
	}
	c.stray = 0
	bit := uint64(1) << (c.requests % pending)
	c.heads, c.connects = c.heads&^bit, c.connects&^bit
	switch string(method) {
	case "HEAD":
		c.heads |= bit
	case "CONNECT":
		c.connects |= bit
	}
	c.requests++
	return join(c.link, c.requests)
}

// answer returns the key of the exchange of the next answer, and the method of its request
// if that is HEAD or CONNECT, which change what follows the head of the answer.
func (c *conn) answer(at int64) (key uint64, method string) {
	if c.answers == c.requests { // its request is lost or delayed
		key = join(c.link, uint64(at)|1<<63)
		if c.stray < maxStray {
			c.strays[c.stray] = stray{at, key}
			c.stray++
		}
		return key, ""
	}
	if c.requests-c.answers <= pending {
		switch bit := uint64(1) << (c.answers % pending); {
		case c.heads&bit != 0:
			method = "HEAD"
		case c.connects&bit != 0:
			method = "CONNECT"
		}
	}
	c.answers++
	return join(c.link, c.answers), method
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
