package s1ap

import "net/netip"

// A Tunnel is the end of a GTP-U tunnel: a transport layer address and a GTP-TEID
// (clauses 9.2.2.1 and 9.2.2.2).
type Tunnel struct {
	V4, V6 netip.Addr // an invalid address means not given
	TEID   uint32
}

// address reads a transport layer address of 32, 128 or 160 bits.
func (r *reader) address() (v4, v6 netip.Addr) {
	if r.bit() { // longer than 160 bits
		r.bad = true
	}
	switch size := r.bits(8) + 1; size {
	case 32, 128, 160:
		v := r.octets(int(size / 8))
		if r.bad {
			return v4, v6
		}
		if size != 128 {
			v4, v = netip.AddrFrom4([4]byte(v)), v[4:]
		}
		if size != 32 {
			v6 = netip.AddrFrom16([16]byte(v))
		}
	default:
		r.bad = true
	}
	return v4, v6
}

func (w *writer) address(v4, v6 netip.Addr) {
	size := 0
	if v4.IsValid() {
		size += 32
	}
	if v6.IsValid() {
		size += 128
	}
	if size == 0 {
		panic("s1ap: a tunnel needs an address")
	}
	w.bits(uint32(size-1), 9)
	if v4.IsValid() {
		a := v4.As4()
		w.octets(a[:]...)
	}
	if v6.IsValid() {
		a := v6.As16()
		w.octets(a[:]...)
	}
}

func (r *reader) tunnel() (t Tunnel) {
	t.V4, t.V6 = r.address()
	t.TEID = r.four()
	return t
}

func (w *writer) tunnel(t Tunnel) {
	w.address(t.V4, t.V6)
	w.teid(t.TEID)
}

func (w *writer) teid(v uint32) { w.octets(byte(v>>24), byte(v>>16), byte(v>>8), byte(v)) }

// A QoS is the quality of service of an E-RAB (clause 9.2.1.15). Rates are in
// bit/s, at most 10 Gbit/s, and zero without GBR.
type QoS struct {
	QCI                          uint8
	Priority                     uint8 // 1 (highest) to 15 (clause 9.2.1.60)
	MayPreempt, Preemptable      bool
	GBR                          bool
	MaxDown, MaxUp               uint64
	GuaranteedDown, GuaranteedUp uint64
}

// The largest bit rate, in bit/s, and its size in octets (clause 9.2.1.19).
const (
	maxRate    = 10_000_000_000
	rateOctets = 5
)

// rate returns a bit rate. A rate above maxRate is an error.
func (r *reader) rate() uint64 {
	v := r.long(rateOctets)
	if v > maxRate {
		r.bad = true
	}
	return v
}

// rate appends a bit rate, at most maxRate.
func (w *writer) rate(v uint64) { w.long(min(v, maxRate), rateOctets) }

func (r *reader) qos() (q QoS) {
	p := r.sequence(2)
	q.QCI = r.octet()
	arp := r.sequence(1)
	q.Priority = uint8(r.bits(4))
	q.MayPreempt, q.Preemptable = r.bit(), r.bit()
	r.end(arp)
	if q.GBR = p.optional&2 != 0; q.GBR {
		gbr := r.sequence(1)
		for _, rate := range [...]*uint64{&q.MaxDown, &q.MaxUp, &q.GuaranteedDown, &q.GuaranteedUp} {
			*rate = r.rate()
		}
		r.end(gbr)
	}
	r.end(p)
	return q
}

func (w *writer) qos(q QoS) {
	w.flags(false, q.GBR, false)
	w.octets(q.QCI)
	w.bits(0, 2)
	w.bits(uint32(q.Priority), 4)
	w.flags(q.MayPreempt, q.Preemptable)
	if q.GBR {
		w.bits(0, 2)
		for _, rate := range [...]uint64{q.MaxDown, q.MaxUp, q.GuaranteedDown, q.GuaranteedUp} {
			w.rate(rate)
		}
	}
}

// flags appends a bit for each flag.
func (w *writer) flags(flags ...bool) {
	for _, f := range flags {
		if f {
			w.bits(1, 1)
		} else {
			w.bits(0, 1)
		}
	}
}

// An ERAB is an item of a list of E-RABs. Which fields an item has depends on the
// list, and so on the identifier of the item:
//
//	ToBeSetupItemContext, ToBeSetupItemBearer   ID, QoS, Tunnel, NAS
//	ToBeSetupItemHO                             ID, Tunnel, QoS
//	SetupItemContext, SetupItemBearer           ID, Tunnel
//	ToBeSwitchedItemDL, ToBeSwitchedItemUL      ID, Tunnel
//	AdmittedItem                                ID, Tunnel, ForwardDown, ForwardUp
//	DataForwardingItem                          ID, ForwardDown, ForwardUp
//	ERABItem, FailedToSetupItemHO               ID, Cause
//	ReleaseItemBearerRel                        ID
type ERAB struct {
	ID          uint8 // the EPS bearer identity: 0 to 15
	QoS         QoS
	Tunnel      Tunnel
	NAS         []byte // nil for none
	ForwardDown Tunnel // without an address if there is none
	ForwardUp   Tunnel
	Cause       Cause
}

// has returns the fields of an item, and the number of its optional components.
func (id ID) has() (f struct{ qos, tunnel, nas, forward, cause bool }, optional int, ok bool) {
	switch id {
	case ToBeSetupItemContext:
		f.qos, f.tunnel, f.nas = true, true, true
		return f, 2, true
	case ToBeSetupItemBearer:
		f.qos, f.tunnel, f.nas = true, true, true
		return f, 1, true
	case ToBeSetupItemHO:
		f.qos, f.tunnel = true, true
		return f, 1, true
	case SetupItemContext, SetupItemBearer, ToBeSwitchedItemDL, ToBeSwitchedItemUL:
		f.tunnel = true
		return f, 1, true
	case AdmittedItem:
		f.tunnel, f.forward = true, true
		return f, 5, true
	case DataForwardingItem:
		f.forward = true
		return f, 5, true
	case ERABItem, FailedToSetupItemHO:
		f.cause = true
		return f, 1, true
	case ReleaseItemBearerRel:
		return f, 1, true
	}
	return f, 0, false
}

// ParseERAB parses an item of a list of E-RABs (clause 9.1). It returns false
// for other identifiers.
func ParseERAB(id ID, v []byte) (e ERAB, ok bool) {
	has, optional, ok := id.has()
	if !ok {
		return e, false
	}
	r := reader{b: v}
	p := r.sequence(optional)
	if r.bit() { // above 15: the extension of the identity
		return ERAB{}, false
	}
	e.ID = uint8(r.bits(4))
	if has.qos && id != ToBeSetupItemHO {
		e.QoS = r.qos()
	}
	if has.tunnel {
		e.Tunnel = r.tunnel()
	}
	if id == ToBeSetupItemHO {
		e.QoS = r.qos()
	}
	if has.nas && (optional == 1 || p.optional&2 != 0) {
		e.NAS = r.open()
	}
	if has.forward {
		e.ForwardDown = r.forward(p.optional >> 3)
		e.ForwardUp = r.forward(p.optional >> 1)
	}
	if has.cause {
		e.Cause = r.cause()
	}
	r.end(p)
	if r.bad {
		return ERAB{}, false
	}
	return e, true
}

// forward reads the end of a forwarding tunnel. Bit 1 of present is set if
// there is an address, and bit 0 if there is a TEID.
func (r *reader) forward(present uint32) (t Tunnel) {
	if present&2 != 0 {
		t.V4, t.V6 = r.address()
	}
	if present&1 != 0 {
		t.TEID = r.four()
	}
	return t
}

// AppendERAB appends an item of a list of E-RABs. It panics for other
// identifiers, and if the item needs an address that it lacks.
func AppendERAB(b []byte, id ID, c Criticality, e ERAB) []byte {
	has, optional, ok := id.has()
	if !ok {
		panic("s1ap: not an item of E-RABs")
	}
	start := len(b)
	w := writer{b: BeginElement(b, id, c)}
	down := e.ForwardDown.V4.IsValid() || e.ForwardDown.V6.IsValid()
	up := e.ForwardUp.V4.IsValid() || e.ForwardUp.V6.IsValid()
	switch {
	case has.forward:
		w.flags(false, down, down, up, up, false)
	case optional == 2:
		w.flags(false, e.NAS != nil, false)
	default:
		w.flags(false, false)
	}
	w.bits(uint32(e.ID&0x0f), 5)
	if has.qos && id != ToBeSetupItemHO {
		w.qos(e.QoS)
	}
	if has.tunnel {
		w.tunnel(e.Tunnel)
	}
	if id == ToBeSetupItemHO {
		w.qos(e.QoS)
	}
	if has.nas && (optional == 1 || e.NAS != nil) {
		w.open(e.NAS)
	}
	if has.forward && down {
		w.tunnel(e.ForwardDown)
	}
	if has.forward && up {
		w.tunnel(e.ForwardUp)
	}
	if has.cause {
		w.cause(e.Cause)
	}
	return EndElement(w.b, start)
}

// AppendBitRates appends the element AggregateMaxBitRate, in bit/s (clause 9.2.1.20).
// It lowers rates above 10 Gbit/s to 10 Gbit/s, the limit of the format.
func AppendBitRates(b []byte, c Criticality, down, up uint64) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, AggregateMaxBitRate, c)}
	w.bits(0, 2)
	w.rate(down)
	w.rate(up)
	return EndElement(w.b, start)
}
