package director

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"vitrine"
	"vitrine/director/table"
	"vitrine/internal/sctp"
	"vitrine/wire/gtpc"
)

// A watch checks the health of the instances. Its findings are local: they make a key
// skip to its next choice, and change no weight.
type watch struct {
	now     func() time.Duration
	log     *slog.Logger
	changed chan struct{} // signals that findings are to be published
	counter uint8         // GTP-C: the restart counter that all instances share; set it before run

	mu      sync.Mutex
	health  Health
	watched map[string]*watched
	wake    chan struct{} // signals that the watched instances have changed
}

// A watched is one watched instance.
type watched struct {
	instance vitrine.Instance
	how      string // options, tcp, echo or off
	away     bool
	failed   int // in a row
	rose     int // in a row
	reason   string
	stop     context.CancelFunc // nil: not checked yet
}

func newWatch(now func() time.Duration, log *slog.Logger) *watch {
	return &watch{now: now, log: log, changed: make(chan struct{}, 1), watched: map[string]*watched{}, wake: make(chan struct{}, 1)}
}

// follow watches a table's instances as the configuration says. Instances that are new,
// or are checked in another way, count as up until checks find them away.
func (w *watch) follow(t *table.Table, c *Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	present := map[string]bool{}
	for i := range int32(t.Len()) {
		in := *t.Instance(i)
		how := c.howWatched(in.Type)
		present[in.Name] = true
		old := w.watched[in.Name]
		if old != nil && old.instance.Address == in.Address && old.how == how && w.health == c.Health {
			old.instance = in
			continue
		}
		if old != nil && old.stop != nil {
			old.stop()
		}
		if old != nil && old.away {
			w.notify()
		}
		w.watched[in.Name] = &watched{instance: in, how: how}
	}
	for name, old := range w.watched {
		if !present[name] {
			if old.stop != nil {
				old.stop()
			}
			delete(w.watched, name)
		}
	}
	w.health = c.Health
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// howWatched returns how the instances of a type are checked. A type that the file does
// not have yet is not checked.
func (c *Config) howWatched(typeName string) string {
	switch t := c.Type(typeName); {
	case t == nil:
		return "off"
	case t.Protocol == GTPC:
		return c.Health.GTPC
	case t.Protocol == S1AP && t.Transport == SCTP && c.Health.S1AP == "tcp":
		return "sctp"
	case t.Protocol == S1AP:
		return c.Health.S1AP
	case t.Transport == TCP && c.Health.SIP == "options":
		return "tcp"
	}
	return c.Health.SIP
}

// notify requests a publication of the findings.
func (w *watch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// away reports whether an instance counts as away.
func (w *watch) away(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.watched[name]
	return in != nil && in.away
}

// reason returns why an instance counts as away; empty if it does not.
func (w *watch) reason(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in := w.watched[name]; in != nil && in.away {
		return in.reason
	}
	return ""
}

// run checks until ctx is done, with one goroutine per instance.
func (w *watch) run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		w.mu.Lock()
		for _, in := range w.watched {
			if in.stop != nil || in.how == "off" {
				continue
			}
			one, stop := context.WithCancel(ctx)
			in.stop = stop
			health := w.health
			asking.Go(func() {
				defer stop()
				w.ask(one, in, health)
			})
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.wake:
		}
	}
}

// ask checks one instance periodically.
func (w *watch) ask(ctx context.Context, in *watched, health Health) {
	w.mu.Lock()
	address, how, name := in.instance.Address, in.how, in.instance.Name
	w.mu.Unlock()
	check := map[string]func(context.Context, netip.AddrPort) error{"options": askOptions, "tcp": askTCP, "sctp": askSCTP, "echo": w.askEcho}[how]
	// Spread the checks of the instances over the period.
	phase := time.Duration(table.Key([]byte(name)) % uint64(health.Every))
	timer := time.NewTimer(phase)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(time.Duration(health.Every))
		one, cancel := context.WithTimeout(ctx, time.Duration(health.Timeout))
		err := check(one, address)
		cancel()
		if ctx.Err() != nil {
			return
		}
		w.record(in, err, health)
	}
}

// record stores the result of one check. A check that this host could not make says nothing about
// the instance.
func (w *watch) record(in *watched, err error, health Health) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if isShortage(err) {
		w.log.Warn("cannot check an instance", "instance", in.instance.Name, "type", in.instance.Type, "error", err)
		return
	}
	was := in.away
	if err != nil {
		in.failed, in.rose, in.reason = in.failed+1, 0, err.Error()
		in.away = in.away || in.failed >= health.Fail
	} else {
		in.failed, in.rose = 0, in.rose+1
		in.away = in.away && in.rose < health.Rise
	}
	if in.away == was {
		return
	}
	if in.away {
		w.log.Warn("instance is away", "instance", in.instance.Name, "type", in.instance.Type, "reason", in.reason)
	} else {
		w.log.Warn("instance is back", "instance", in.instance.Name, "type", in.instance.Type)
	}
	w.notify()
}

// isShortage reports whether this host has no descriptor or no memory for a check.
func isShortage(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, func(s error) bool { return errors.Is(err, s) })
}

// A finding says why the instance at an address is away.
type finding struct {
	Address netip.AddrPort
	Reason  string
}

// carry writes the instances that are away, for the next process.
func (w *watch) carry(to io.Writer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	away := map[string]finding{}
	for name, in := range w.watched {
		if in.away {
			away[name] = finding{in.instance.Address, in.reason}
		}
	}
	if err := json.NewEncoder(to).Encode(away); err != nil {
		return fmt.Errorf("hand over which instances are away: %w", err)
	}
	return nil
}

// takeOver reads what carry wrote. Those instances count as away until checks find them up.
func (w *watch) takeOver(from io.Reader) error {
	var away map[string]finding
	if err := json.NewDecoder(from).Decode(&away); err != nil {
		return fmt.Errorf("take over which instances are away: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, found := range away {
		if in := w.watched[name]; in != nil && in.how != "off" && in.instance.Address == found.Address {
			in.away, in.reason = true, found.Reason
			w.notify()
		}
	}
	return nil
}

// askTCP checks that the instance accepts a TCP connection.
func askTCP(ctx context.Context, to netip.AddrPort) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	return c.Close()
}

// askSCTP checks that the instance accepts an association.
func askSCTP(ctx context.Context, to netip.AddrPort) error {
	c, err := sctp.Dial(ctx, to)
	if err != nil {
		return err
	}
	return c.Close()
}

// exchange sends a message over UDP up to three times, a third of the time apart, until
// right accepts an answer or ctx is done.
func exchange(ctx context.Context, to netip.AddrPort, message []byte, right func([]byte) bool) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", to.String())
	if err != nil {
		return err
	}
	defer c.Close() // an error loses nothing
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
	end, _ := ctx.Deadline()
	again := time.Until(end) / 3
	answer := make([]byte, 4096) // a longer answer is cut; right looks at its start
	for try := range 3 {
		if _, err := c.Write(message); err != nil {
			return err
		}
		wait := time.Now().Add(again)
		if try == 2 {
			wait = end
		}
		if err := c.SetReadDeadline(wait); err != nil {
			return err
		}
		if ctx.Err() != nil { // this deadline may have replaced the one that ends a read
			break
		}
		for {
			n, err := c.Read(answer)
			if err == nil && right(answer[:n]) {
				return nil
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s does not answer", to)
}

// askOptions sends OPTIONS (RFC 3261 section 11). Any final answer except 503 shows that
// the instance serves.
func askOptions(ctx context.Context, to netip.AddrPort) error {
	id := rand.Text()
	message := fmt.Appendf(nil, "OPTIONS sip:%s SIP/2.0\r\nVia: SIP/2.0/UDP director.invalid;rport;branch=z9hG4bK%s\r\nMax-Forwards: 1\r\n"+
		"From: <sip:director@director.invalid>;tag=%s\r\nTo: <sip:%s>\r\nCall-ID: %s\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n",
		to, id[:16], id[:8], to, id)
	busy := false
	err := exchange(ctx, to, message, func(answer []byte) bool {
		if !bytes.HasPrefix(answer, []byte("SIP/2.0 ")) || !bytes.Contains(answer, []byte(id)) || len(answer) < 12 || answer[8] == '1' {
			return false
		}
		busy = bytes.HasPrefix(answer[8:], []byte("503"))
		return true
	})
	if err == nil && busy {
		return fmt.Errorf("%s answers OPTIONS with 503", to)
	}
	return err
}

// askEcho sends an Echo Request (TS 29.274 clause 7.1.1). It has the restart counter of all
// messages from the director's address: another counter would tell the instance that its peer has
// restarted, and the instance would drop the peer's sessions (TS 23.007 clause 18).
func (w *watch) askEcho(ctx context.Context, to netip.AddrPort) error {
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	random[0] &= 0x7f           // the highest bit is for commands (TS 29.274 clause 7.6)
	sequence := uint32(random[0])<<16 | uint32(random[1])<<8 | uint32(random[2])
	message := gtpc.AppendEchoRequest(nil, sequence, w.counter)
	return exchange(ctx, to, message, func(answer []byte) bool {
		return len(answer) >= 8 && answer[0]>>5 == 2 && answer[1] == byte(gtpc.EchoResponse) && slices.Equal(answer[4:7], random[:])
	})
}
