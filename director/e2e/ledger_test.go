package e2e

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"vitrine"
	"vitrine/internal/capturetest"
	"vitrine/wire/sip"
)

// A ledger records the instances and the end of each transaction, from a capture of the traffic
// between directors and instances. It reads the capture while tcpdump writes it.
type ledger struct {
	t         testing.TB
	capture   *capturetest.Capture
	site      site
	directors map[netip.Addr]bool
	read      chan error
	over      atomic.Int64 // transactions that have ended

	mu           sync.Mutex
	transactions map[uint64]*record
	messages     int64
	again        int64 // retransmitted requests to instances
	refused      int64 // ICMP errors from a director's address
	bad          int64 // messages that do not parse
}

// A record is one transaction.
type record struct {
	class        class
	at           netip.AddrPort   // first instance
	others       []netip.AddrPort // other instances that got its requests
	by           netip.AddrPort   // director of the first message
	both         bool             // later messages passed another director
	began, ended time.Time        // ended is zero until it has ended
	moved        time.Time        // when it was first sent to another instance
	requests     uint16           // set of its kinds of requests: see kindOf
	notified     bool             // SUBSCRIBE: the NOTIFY was sent
	answered     bool             // SUBSCRIBE: the response was sent
}

// follow starts a ledger for the instances of the site.
func (s site) follow(directors ...*steward) *ledger {
	s.t.Helper()
	l := &ledger{t: s.t, site: s, directors: map[netip.Addr]bool{}, read: make(chan error, 1),
		transactions: map[uint64]*record{}}
	for _, d := range directors {
		l.directors[netip.MustParseAddrPort(d.address).Addr()] = true
	}
	fifo := filepath.Join(s.dir, "capture.pcap")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		s.t.Fatal(err)
	}
	go func() { l.read <- l.readAll(fifo) }()
	var err error
	// Slots of the capture's ring have the size of the longest packet kept.
	if l.capture, err = capturetest.Start("", "lo", s.filter(directors), fifo, "-s", "4096", "-B", "131072"); err != nil {
		if w, open := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); open == nil {
			_ = w.Close() // lets the reader end
			<-l.read
		}
		if vitrine.IsUnsupported(err) {
			s.t.Skip(err)
		}
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.capture.Stop() }) // close has reported an error, if the test got there
	return l
}

// close ends the capture and waits until it has been read.
func (l *ledger) close() {
	l.t.Helper()
	if err := l.capture.Stop(); err != nil {
		l.t.Error(err)
	}
	if err := <-l.read; err != nil {
		l.t.Error(err)
	}
	if l.bad > 0 {
		l.t.Errorf("%d messages between directors and instances cannot be parsed", l.bad)
	}
}

// readAll reads a capture in pcap format: Ethernet, UDP.
func (l *ledger) readAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	var header [24]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return fmt.Errorf("read the capture: %w", err)
	}
	const magic, ethernet = 0xa1b2c3d4, 1
	if m, link := binary.LittleEndian.Uint32(header[:]), binary.LittleEndian.Uint32(header[20:]); m != magic || link != ethernet {
		return fmt.Errorf("read the capture: magic %x, link type %d", m, link)
	}
	packet := make([]byte, 1<<16)
	for {
		var head [16]byte
		if _, err := io.ReadFull(in, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the capture: %w", err)
		}
		n := binary.LittleEndian.Uint32(head[8:])
		if int(n) > len(packet) {
			return fmt.Errorf("read the capture: a packet of %d bytes", n)
		}
		if _, err := io.ReadFull(in, packet[:n]); err != nil {
			return fmt.Errorf("read the capture: %w", err)
		}
		at := time.Unix(int64(binary.LittleEndian.Uint32(head[:])), 1000*int64(binary.LittleEndian.Uint32(head[4:])))
		l.packet(at, packet[:n])
	}
}

func (l *ledger) packet(at time.Time, p []byte) {
	const ethernet = 14
	if len(p) < ethernet+40 {
		return
	}
	ip := p[ethernet:]
	protocol, size := ip[9], int(ip[0]&15)*4
	from, to := netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	if ip[0]>>4 == 6 {
		protocol, size = ip[6], 40
		from, to = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case protocol == syscall.IPPROTO_ICMP && l.directors[from]:
		l.refused++
	case protocol == syscall.IPPROTO_UDP && len(ip) >= size+8:
		l.datagram(at, from, to, ip[size:])
	}
}

func (l *ledger) datagram(at time.Time, from, to netip.Addr, p []byte) {
	var m sip.Message
	if _, err := m.Parse(p[8:]); err != nil {
		l.bad++
		return
	}
	l.messages++
	l.message(at, netip.AddrPortFrom(from, binary.BigEndian.Uint16(p)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(p[2:])), &m)
}

// message records one message. A REGISTER ends with an answer that is not a challenge, an
// INVITE with the ACK, a BYE with an answer, and a SUBSCRIBE with both its answer and the
// NOTIFY.
func (l *ledger) message(at time.Time, from, to netip.AddrPort, m *sip.Message) {
	k, ok := classOf(m)
	if !ok {
		return
	}
	id := k.of(m.CallID)
	r := l.transactions[id]
	method := string(m.SequenceMethod)
	if l.site.isInstance(to) {
		if !m.IsRequest() {
			return
		}
		if r == nil {
			r = &record{class: k, at: to, by: from, began: at}
			l.transactions[id] = r
		}
		r.both = r.both || r.by != from
		if kind := kindOf(m); r.requests&kind != 0 {
			l.again++
		} else {
			r.requests |= kind
		}
		r.sent(at, to)
		if method == "ACK" {
			l.end(r, at)
		}
		return
	}
	if r == nil || r.at != from {
		return
	}
	r.notified = r.notified || method == "NOTIFY" && m.IsRequest()
	final := m.Status >= 200
	r.answered = r.answered || method == "SUBSCRIBE" && final
	if k == inSubscription && r.notified && r.answered || method == "REGISTER" && final && m.Status != 401 || method == "BYE" && final {
		l.end(r, at)
	}
}

func (l *ledger) end(r *record, at time.Time) {
	if r.ended.IsZero() {
		r.ended = at
		l.over.Add(1)
	}
}

// sent records that a request of the transaction went to an instance.
func (r *record) sent(at time.Time, to netip.AddrPort) {
	if to == r.at && len(r.others) == 0 || len(r.others) > 0 && r.others[len(r.others)-1] == to {
		return
	}
	if len(r.others) == 0 {
		r.moved = at
	}
	r.others = append(r.others, to)
}

// A class distinguishes the transactions of one Call-ID.
type class uint64

const (
	inRegistration class = iota
	inSubscription
	inInvitation
	inFarewell
	classes
)

func (k class) of(callID []byte) uint64 { return xxhash.Sum64(callID) + uint64(k) }

// classOf returns a message's class; ok is false for messages without one, such as
// OPTIONS.
func classOf(m *sip.Message) (k class, ok bool) {
	switch string(m.SequenceMethod) {
	case "REGISTER":
		return inRegistration, true
	case "SUBSCRIBE", "NOTIFY":
		return inSubscription, true
	case "INVITE", "ACK", "CANCEL":
		return inInvitation, true
	case "BYE":
		return inFarewell, true
	}
	return 0, false
}

func (r *record) String() string {
	text := fmt.Sprintf("began %s at %v", r.began.Format("15:04:05.000"), r.at)
	if len(r.others) > 0 {
		text += fmt.Sprintf(", then %v after %s", r.others, r.moved.Sub(r.began))
	}
	if r.ended.IsZero() {
		return text + ", not over"
	}
	return text + fmt.Sprintf(", over after %s", r.ended.Sub(r.began))
}

// kindOf returns a bit for each kind of request that a transaction has at most once. The
// sequence number distinguishes the REGISTER with credentials from the first REGISTER.
func kindOf(m *sip.Message) uint16 {
	method := string(m.SequenceMethod)
	if method == "REGISTER" && m.Sequence == 2 {
		method = "credentials"
	}
	return 1 << slices.Index([]string{"REGISTER", "credentials", "SUBSCRIBE", "INVITE", "CANCEL", "ACK", "BYE", "NOTIFY"}, method)
}

// of returns the records of a call's transactions.
func (l *ledger) of(callID string) (all []*record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range classes {
		if r := l.transactions[k.of([]byte(callID))]; r != nil {
			all = append(all, r)
		}
	}
	return all
}

// began counts the transactions that began at an instance.
func (l *ledger) began(in *instance) (n int) {
	at := netip.MustParseAddrPort(in.address)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.transactions {
		if r.at == at {
			n++
		}
	}
	return n
}

// inFlight counts the transactions that an instance had in flight at a time.
func (l *ledger) inFlight(in *instance, when time.Time) (n int) {
	at := netip.MustParseAddrPort(in.address)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.transactions {
		if r.at == at && r.open(when) {
			n++
		}
	}
	return n
}

// hadOpen reports whether a call had an open transaction at one of the instances at a time.
func (l *ledger) hadOpen(callID string, at []*instance, when time.Time) bool {
	for _, r := range l.of(callID) {
		for _, in := range at {
			if r.at == netip.MustParseAddrPort(in.address) && r.open(when) {
				return true
			}
		}
	}
	return false
}

func (r *record) open(when time.Time) bool {
	return !r.began.After(when) && (r.ended.IsZero() || r.ended.After(when))
}

// amid reports whether a transaction was open between from and to. A transaction whose answer
// was lost is still open for its phone, which retransmits the request: moved shows that.
func (r *record) amid(from, to time.Time) bool {
	return r.began.Before(to) && (r.ended.IsZero() || r.ended.After(from) || r.moved.After(from))
}

// longer reports whether a transaction took longer than a transition, which can happen on a
// stalled host. The director guarantees nothing for such a transaction.
func (r *record) longer(than time.Duration) bool {
	return r.moved.Sub(r.began) > than || r.ended.Sub(r.began) > than
}

// strayed returns the transactions with more than one instance, except those that began at one
// of the excepted instances.
func (l *ledger) strayed(except ...*instance) []string {
	excepted := map[netip.AddrPort]bool{}
	for _, in := range except {
		excepted[netip.MustParseAddrPort(in.address)] = true
	}
	return l.strayedBut(func(r *record) bool { return excepted[r.at] })
}

// strayedBut is like strayed, but excepts transactions for which excepted returns true.
func (l *ledger) strayedBut(excepted func(*record) bool) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.transactions {
		if len(r.others) > 0 && !excepted(r) {
			all = append(all, r.String())
		}
	}
	return all
}

// shared counts the transactions whose messages passed more than one director.
func (l *ledger) shared() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.transactions {
		if r.both {
			n++
		}
	}
	return n
}

// elsewhere returns the records of calls with BYE and INVITE at different instances. It checks
// only calls whose BYE began after the given time; all is their number. It leaves out calls that
// moved later than the promised time after their begin.
func (l *ledger) elsewhere(after time.Time, promised time.Duration) (strayed []string, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.transactions {
		bye := l.transactions[id-uint64(inInvitation)+uint64(inFarewell)]
		if bye == nil || r.class != inInvitation || bye.class != inFarewell || bye.began.Before(after) {
			continue
		}
		all++
		late := r.moved.Sub(r.began) > promised || bye.moved.Sub(bye.began) > promised
		if !late && (bye.at != r.at || len(bye.others) > 0) {
			strayed = append(strayed, fmt.Sprintf("INVITE %v; BYE %v", r, bye))
		}
	}
	return strayed, all
}
