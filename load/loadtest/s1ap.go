package loadtest

import (
	"context"
	"errors"
	"net"
	"time"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/epctest"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/s1"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// S1AP returns the protocol of attaches. The function is the reference MME. Its HSS
// follows the Behaviour: it rejects, ignores or delays requests for vectors.
func S1AP() Protocol {
	return Protocol{
		Serve: func(ctx context.Context, address string, b Behaviour) (Function, error) {
			return newCore(ctx, address, b)
		},
		Messages: map[string]int{"attach": 8, "attach-detach": 12},
		Delayed:  1,
		Closed:   "connect",
		Refused:  "emm-8",
		Wrong:    [][2]string{{"scenario", "attach-nothing"}, {"users", "-1"}, {"subscribers", "1234"}, {"network", "99999"}},
	}
}

// A core is an MME with its neighbours. It counts the messages about UEs at the
// MME's sockets.
type core struct {
	*epctest.HSS
	tally
	addr  string
	asked int // vectors; under mu
}

func newCore(ctx context.Context, address string, b Behaviour) (*core, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	home, _ := identity.MakePLMN("001", "01")
	c := &core{HSS: epctest.NewHSS(home), tally: newTally(b), addr: listener.Addr().String()}
	if b.Shut {
		return c, listener.Close()
	}
	m := mme.New(mme.Config{
		GUMMEI: identity.GUMMEI{PLMN: home, Group: 1}, Instance: 1,
		Subscribers: c, Gateway: epctest.NewGateway(), CallTime: time.Hour, Timers: mme.Timers{NAS: time.Hour},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Serve(ctx, counting{listener, c}) // returns when ctx ends
	}()
	context.AfterFunc(ctx, func() { <-done })
	return c, nil
}

func (c *core) Addr() string { return c.addr }

// Vector returns the HSS's vector, or fails or delays it by the Behaviour.
func (c *core) Vector(ctx context.Context, imsi identity.Digits, serving identity.PLMN, failed *mme.Resynchronisation) (aka.Vector, error) {
	c.mu.Lock()
	place := c.asked % 100
	refuse, ignore := place < c.behaviour.Refuse, place >= c.behaviour.Refuse && place < c.behaviour.Refuse+c.behaviour.Ignore
	if failed == nil { // a resynchronisation belongs to the same call
		c.asked++
	} else {
		refuse, ignore = false, false
	}
	if refuse {
		c.seen.Refused++
	}
	if ignore {
		c.seen.Ignored++
	}
	c.mu.Unlock()
	if refuse {
		return aka.Vector{}, mme.ErrUnknown
	}
	if ignore {
		<-ctx.Done()
		return aka.Vector{}, ctx.Err()
	}
	select {
	case <-time.After(c.behaviour.Delay):
	case <-ctx.Done():
	}
	return c.HSS.Vector(ctx, imsi, serving, failed)
}

// count counts a message. A message that is not about a UE does not belong to a call.
func (c *core) count(message []byte, received bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var m s1ap.Message
	if m.Parse(message) != nil || m.Check() != nil {
		c.seen.Unparsed++
		return
	}
	switch {
	case m.Procedure == s1ap.S1Setup:
	case !received:
		c.seen.Sent++
		if m.Procedure == s1ap.InitialContextSetup { // the attach is accepted
			c.seen.Finished++
		}
	default:
		c.seen.Requests[m.Procedure.String()]++
		if m.Procedure == s1ap.InitialUEMessage {
			c.seen.Calls++
			c.seen.Arrivals = append(c.seen.Arrivals, time.Now())
		}
	}
}

// counting is a listener whose connections count messages.
type counting struct {
	net.Listener
	core *core
}

func (l counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &counted{Conn: conn, core: l.core}, nil
}

// counted is a connection that counts messages.
type counted struct {
	net.Conn
	core    *core
	in, out s1.Reader
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, errors.Join(err, c.pass(&c.in, b[:n], true))
}

// Write counts messages before they are sent, so that the count is complete when
// the generator has the answer.
func (c *counted) Write(b []byte) (int, error) {
	if err := c.pass(&c.out, b, false); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// pass counts the messages that end in b.
func (c *counted) pass(r *s1.Reader, b []byte, received bool) error {
	for len(b) > 0 {
		n := copy(r.Room(), b)
		r.Received(n)
		b = b[n:]
		for {
			message, err := r.Next()
			if err != nil {
				return err
			}
			if message == nil {
				break
			}
			c.core.count(message, received)
		}
	}
	return nil
}
