package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"vitrine"
	"vitrine/director/table"
	"vitrine/load"
	generator "vitrine/load/s1ap"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// The load on devices for S1AP.
const (
	s1apENodeBs = 8
	s1apUEs     = 32 // UEs of each eNodeB, which take the same step; successive UEs belong to successive instances
)

// s1apMix is ten calls in the proportions of the generator's default mix.
var s1apMix = []string{
	"service-request", "service-request", "tracking-area-update", "service-request", "attach", "service-request",
	"service-request", "tracking-area-update", "service-request", "detach",
}

// An s1apPlan is the messages that eNodeBs and instances exchange. It is played repeatedly.
type s1apPlan struct{ ENodeBs []s1apENodeB }

type s1apENodeB struct {
	Setup []byte // the S1 Setup Request
	Steps []s1apStep
}

// An s1apStep is a group of messages in one direction. They are sent without waiting for each
// other.
type s1apStep struct {
	Up       bool
	Messages int
	Sent     []byte   // frames that the eNodeB sends, if Up
	At       [][]byte // frames of each instance: received if Up, otherwise sent
}

// longest returns the size in octets of the largest step, summed over all instances.
func (e *s1apENodeB) longest() (most int) {
	for _, s := range e.Steps {
		size := 0
		for _, frames := range s.At {
			size += len(frames)
		}
		most = max(most, size)
	}
	return most
}

// A talk is the messages of one UE's connection, from the Initial UE Message to the end of the
// release.
type talk []spoken

type spoken struct {
	up      bool
	message []byte
}

// newS1APPlan records a trial of the generator against the reference MME. The plan plays each
// recorded procedure with all UEs of each eNodeB.
func newS1APPlan(ctx context.Context) (plan s1apPlan, err error) {
	c, err := recordMix(ctx)
	if err != nil {
		return plan, fmt.Errorf("record a trial: %w", err)
	}
	talks, err := c.talks()
	if err != nil {
		return plan, err
	}
	for _, procedure := range s1apMix {
		if talks[procedure] == nil {
			return plan, fmt.Errorf("the recording has no %s", procedure)
		}
	}
	subscribers, err := newSubscribers()
	if err != nil {
		return plan, err
	}
	for e := range s1apENodeBs {
		b := newS1APENodeB(e, subscribers)
		for i := range s1apMix { // each eNodeB begins with another call
			b.play(talks[s1apMix[(i+e)%len(s1apMix)]])
		}
		plan.ENodeBs = append(plan.ENodeBs, b.s1apENodeB)
	}
	return plan, nil
}

// recordMix records the generator's default mix against the reference MME.
func recordMix(ctx context.Context) (*conversation, error) {
	return recordS1AP(ctx, func(ctx context.Context, target string) error {
		trial := load.Trial{Rate: 100, Duration: 1, Seed: 1, Params: map[string]string{"scenario": generator.Mix, "timeout": "2s"}, Targets: []string{target}}
		return generator.Run(ctx, trial, new(bytes.Buffer), new(bytes.Buffer))
	})
}

// talks returns the first complete talk of each procedure, by the procedure's name in s1apMix.
func (c *conversation) talks() (map[string]talk, error) {
	var rest [2][]byte
	open, whole := map[uint32]talk{}, map[string]talk{}
	for _, k := range c.chunks {
		of := &rest[0]
		if k.up {
			of = &rest[1]
		}
		*of = append(*of, k.data...)
		for {
			message, after, err := frame.Cut(*of)
			if err != nil {
				return nil, err
			}
			if message == nil {
				break
			}
			*of = after
			if err := file(open, whole, spoken{k.up, message}); err != nil {
				return nil, err
			}
		}
	}
	return whole, nil
}

// file adds a message to its talk in open. A complete talk moves to whole, unless whole already
// has a talk of the same procedure.
func file(open map[uint32]talk, whole map[string]talk, s spoken) error {
	var m s1ap.Message
	if err := m.Parse(s.message); err != nil {
		return err
	}
	id, about := enbIDOf(&m)
	switch {
	case !about:
		return nil
	case m.Procedure == s1ap.InitialUEMessage:
		open[id] = nil
	}
	open[id] = append(open[id], s)
	if m.Procedure != s1ap.UEContextRelease || m.Kind != s1ap.Successful {
		return nil
	}
	name, err := procedureOf(open[id][0].message)
	if whole[name] == nil {
		whole[name] = open[id]
	}
	delete(open, id)
	return err
}

// enbIDOf returns the eNB UE S1AP ID of a message. The result is false if the message is not about
// a UE.
func enbIDOf(m *s1ap.Message) (id uint32, ok bool) {
	if v, has := m.Find(s1ap.ENBUEID); has {
		return s1ap.ParseENBUEID(v)
	}
	v, _ := m.Find(s1ap.UEIDs)
	_, id, pair, ok := s1ap.ParseUEIDs(v)
	return id, pair && ok
}

// procedureOf returns the procedure that the first message of a connection begins, by its name in
// s1apMix.
func procedureOf(message []byte) (string, error) {
	var m s1ap.Message
	if err := m.Parse(message); err != nil {
		return "", err
	}
	v, _ := m.Find(s1ap.NASPDU)
	octets, _ := s1ap.ParseNAS(v)
	var pdu nas.PDU
	if err := pdu.Parse(octets); err != nil {
		return "", err
	}
	if pdu.Security == nas.ServiceRequestHeader {
		return "service-request", nil
	}
	h, err := nas.ParseHeader(pdu.Body)
	if err != nil {
		return "", err
	}
	switch h.Type {
	case nas.AttachRequestType:
		return "attach", nil
	case nas.UpdateRequestType:
		return "tracking-area-update", nil
	case nas.DetachRequestType:
		return "detach", nil
	}
	return "", fmt.Errorf("a connection begins with a NAS message of type %#x", h.Type)
}

// subscribers finds IMSIs that the director steers to given instances.
type subscribers struct {
	table *table.Table
	home  identity.PLMN
	last  int
}

func newSubscribers() (*subscribers, error) {
	var all []vitrine.Instance
	for i := range instances.count {
		all = append(all, vitrine.Instance{
			Name: fmt.Sprintf("i%d", i), ID: uint16(i + 1), Type: s1apType, Weight: 100,
			Address: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(instances.first+i)),
		})
	}
	t, err := table.New(1, []string{s1apType}, all)
	home, ok := identity.MakePLMN("001", "01")
	if !ok {
		err = errors.Join(err, errors.New("no PLMN"))
	}
	return &subscribers{table: t, home: home}, err
}

// attach returns the Attach Request of a new subscriber. The director steers it to the instance.
func (s *subscribers) attach(instance int) []byte {
	for {
		s.last++
		imsi, _ := identity.MakeDigits(fmt.Sprintf("00101%010d", s.last))
		i, _ := s.table.Pick(0, table.Key(imsi.Bytes()), 0, nil)
		if int(s.table.Target(i).ID) == instance+1 {
			u := ue.New(imsi, s.home)
			return u.AppendAttach(nil)
		}
	}
}

// A plannedENodeB is an eNodeB under construction, with the identifiers of its UEs.
type plannedENodeB struct {
	s1apENodeB
	ids     [s1apUEs]enb.IDs
	stmsis  [s1apUEs]identity.STMSI
	attachs [s1apUEs][]byte
}

func newS1APENodeB(number int, s *subscribers) *plannedENodeB {
	cell := enb.Cell{
		ID: s1ap.ENB{PLMN: s.home, ID: uint32(number + 1)}, Name: fmt.Sprintf("bench-%d", number),
		TAI: identity.TAI{PLMN: s.home, TAC: 1}, Address: netip.AddrFrom4([4]byte{198, 18, 0, byte(number)}),
	}
	b := &plannedENodeB{s1apENodeB: s1apENodeB{Setup: cell.AppendSetup(nil)}}
	for u := range s1apUEs {
		instance := u % instances.count
		serial := uint32(number*s1apUEs + u + 1)
		b.ids[u] = enb.IDs{MME: uint32(instance+1)<<24 | serial, ENB: uint32(u + 1)}
		b.stmsis[u] = identity.STMSI{Code: uint8(instance + 1), TMSI: serial}
		b.attachs[u] = s.attach(instance)
	}
	return b
}

// play adds the steps of a procedure of all UEs. UEs of successive instances alternate. A forwarder
// that sends frames to the instances in turn therefore chooses the same instances as the director.
func (b *plannedENodeB) play(t talk) {
	for len(t) > 0 {
		step := s1apStep{Up: t[0].up, At: make([][]byte, instances.count)}
		for len(t) > 0 && t[0].up == step.Up {
			for u := range s1apUEs {
				framed := frame.Append(nil, frame.UE, b.rewrite(t[0].message, u))
				if step.Up {
					step.Sent = append(step.Sent, framed...)
				}
				at := &step.At[u%instances.count]
				*at = append(*at, framed...)
				step.Messages++
			}
			t = t[1:]
		}
		b.Steps = append(b.Steps, step)
	}
}

// rewrite returns a recorded message with the identifiers of a UE. An Initial UE Message that
// attaches also gets the UE's Attach Request.
func (b *plannedENodeB) rewrite(message []byte, u int) []byte {
	var m s1ap.Message
	_ = m.Parse(message) // file has parsed it
	attach := false
	if m.Procedure == s1ap.InitialUEMessage {
		name, _ := procedureOf(message)
		attach = name == "attach"
	}
	out := s1ap.AppendHeader(nil, m.Kind, m.Procedure, m.Criticality)
	for it := m.Elements(); it.Next(); {
		switch {
		case it.ID == s1ap.MMEUEID:
			out = s1ap.AppendMMEUEID(out, it.ID, it.Criticality, b.ids[u].MME)
		case it.ID == s1ap.ENBUEID:
			out = s1ap.AppendENBUEID(out, it.Criticality, b.ids[u].ENB)
		case it.ID == s1ap.UEIDs:
			out = s1ap.AppendUEIDs(out, it.Criticality, b.ids[u].MME, b.ids[u].ENB)
		case it.ID == s1ap.STMSI:
			out = s1ap.AppendSTMSI(out, it.Criticality, b.stmsis[u])
		case it.ID == s1ap.NASPDU && attach:
			out = s1ap.AppendNAS(out, it.ID, it.Criticality, b.attachs[u])
		default:
			out = s1ap.AppendElement(out, it.ID, it.Criticality, it.Value)
		}
	}
	return s1ap.End(out, 0)
}
