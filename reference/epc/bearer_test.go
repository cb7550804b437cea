package epc_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/nas"
)

// voice is the traffic aggregate description of a UE's request.
func voice() []byte {
	return nas.AppendTFT(nil, nas.CreateTFT, nas.Filter{Direction: 3, Components: nas.AppendFlow(nil, 17, [4]byte{192, 0, 2, 9}, 6000)})
}

// bearers makes an MME answer Create and Delete Bearer Requests with a cause. It returns
// the requests.
func (m *mme) bearers(cause gtpc.CauseValue, ebi uint8) (created chan gtpc.CreateBearer, deleted chan gtpc.DeleteBearer) {
	created, deleted = make(chan gtpc.CreateBearer, 4), make(chan gtpc.DeleteBearer, 4)
	result := gtpc.Result{Cause: cause}
	handle := func(r *gtp.Request) {
		var create gtpc.CreateBearer
		var remove gtpc.DeleteBearer
		switch {
		case r.Type == gtpc.CreateBearerRequest && create.Parse(&r.Message) == nil:
			b := gtpc.Bearer{EBI: ebi, Result: result, SGW: create.Bearers[0].SGW, ENB: m.Own(gtpc.S1UeNodeB, 77)}
			create.Bearers[0].TFT = append([]byte(nil), create.Bearers[0].TFT...)
			created <- create
			r.Answer(m.sgwTEID.Load(), &gtpc.Answer{Type: gtpc.CreateBearerResponse, Result: result, Bearers: []gtpc.Bearer{b}})
		case r.Type == gtpc.DeleteBearerRequest && remove.Parse(&r.Message) == nil:
			deleted <- remove
			r.Answer(m.sgwTEID.Load(), &gtpc.Answer{Type: gtpc.DeleteBearerResponse, Result: result, Bearers: []gtpc.Bearer{{EBI: remove.Bearers[0], Result: result}}})
		default:
			m.t.Errorf("got %v from the S-GW", r.Type)
		}
	}
	m.handle.Store(&handle)
	return created, deleted
}

// rule asks the PCRF for a rule, or for its end, and returns the status of the answer.
func (s site) rule(method, path string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.at(31, 8080)+"/rules/"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// TestApplicationsGetDedicatedBearers has the PCRF make, change and remove a dedicated bearer
// (TS 23.401 clauses 5.4.1 and 5.4.4.1), and refuse one.
func TestApplicationsGetDedicatedBearers(t *testing.T) {
	s := newSite(t)
	s.pcrf("--rules", s.at(31, 8080))
	s.pgw("--pcrf", s.at(31, diameter.Port))
	s.sgw(11)
	m := s.mme(1, 1)
	of := m.create(11, m.request(imsi(0), 1))
	m.sgwTEID.Store(of.Sender.TEID)
	created, deleted := m.bearers(accepted, 6)

	if status := s.rule(http.MethodPut, imsi(0)+"/call?qci=1&up=64&down=32"); status != http.StatusNoContent {
		t.Fatalf("PUT: got status %d", status)
	}
	got := <-created
	want := gtpc.QoS{QCI: 1, Priority: 8, MaxUp: 64, MaxDown: 32, GuaranteedUp: 64, GuaranteedDown: 32}
	got.Bearers[0].QoS.Preemptable = false // a default of the PCRF
	if b := got.Bearers[0]; got.Linked != 5 || got.PTI != 0 || b.QoS != want || b.SGW.Addr() != s.addr(11, 0).Addr() {
		t.Errorf("%+v", got)
	}
	template, ok := nas.ParseTFT(got.Bearers[0].TFT)
	if !ok || template.Operation != nas.CreateTFT || !template.Next() {
		t.Errorf("got template %x", got.Bearers[0].TFT)
	}
	if status := s.rule(http.MethodPut, imsi(0)+"/call?qci=1&up=16&down=16"); status != http.StatusNoContent {
		t.Fatalf("PUT with other rates: got status %d", status)
	}
	if got := <-deleted; len(got.Bearers) != 1 || got.Bearers[0] != 6 {
		t.Errorf("before the changed bearer: %+v", got)
	}
	if got := <-created; got.Bearers[0].QoS.MaxUp != 16 {
		t.Errorf("the changed bearer: %+v", got)
	}
	if status := s.rule(http.MethodDelete, imsi(0)+"/call"); status != http.StatusNoContent {
		t.Errorf("DELETE: got status %d", status)
	}
	if got := <-deleted; len(got.Bearers) != 1 || got.Bearers[0] != 6 {
		t.Errorf("%+v", got)
	}

	m.bearers(gtpc.NoResourcesAvailable, 0)
	for path, want := range map[string]int{
		imsi(0) + "/video?qci=2": http.StatusConflict, imsi(1) + "/call": http.StatusNotFound,
		imsi(0) + "/call?qci=0": http.StatusBadRequest, imsi(0) + "/call?up=x": http.StatusBadRequest,
		imsi(0) + "/" + strings.Repeat("x", 101): http.StatusBadRequest,
	} {
		if status := s.rule(http.MethodPut, path); status != want {
			t.Errorf("PUT %s: got status %d, want %d", path, status, want)
		}
	}
	if status := s.rule(http.MethodDelete, imsi(0)+"/call"); status != http.StatusConflict { // it is gone
		t.Errorf("second DELETE: got status %d", status)
	}
	const procedure = `procedure="create-bearer"`
	for host, name := range map[int]string{11: "sgw_procedures_total", 21: "pgw_procedures_total"} {
		if good, bad := s.metric(host, name, procedure, `cause="16"`), s.metric(host, name, procedure, `cause="73"`); good != 2 || bad != 1 {
			t.Errorf("%s: got %v accepted, %v refused with cause 73, want 2 and 1", name, good, bad)
		}
	}
	if n := s.metric(31, "pcrf_changes_total", `result="2001"`); n != 3 {
		t.Errorf("the PCRF counts %v successful changes, want 3", n)
	}
}

// resources sends a Bearer Resource Command, and returns the cause that refuses it; 0 if a
// request follows.
func (m *mme) resources(teid uint32, command gtpc.BearerResource) gtpc.CauseValue {
	m.t.Helper()
	done := make(chan gtpc.CauseValue, 1)
	m.Command(m.t.Context(), m.addr(11, gtp.Port), teid, 0, &command, func(answer *gtpc.Message, err error) {
		var failure gtpc.BearerFailure
		switch {
		case err != nil:
			m.t.Error(err)
		case answer.Type == gtpc.BearerResourceFailure:
			if err := failure.Parse(answer); err != nil || failure.PTI != command.PTI || failure.Linked != command.Linked {
				m.t.Errorf("%+v, %v", failure, err)
			}
		}
		done <- failure.Result.Cause
	})
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	select {
	case cause := <-done:
		return cause
	case <-ctx.Done():
		m.t.Fatal("got no answer to a command")
		return 0
	}
}

// TestUEsGetDedicatedBearers sends commands for a UE (TS 23.401 clause 5.4.5), with a PCRF
// and without. The requests that follow have the sequence number of the command.
func TestUEsGetDedicatedBearers(t *testing.T) {
	for name, args := range map[string][]string{"with a PCRF": {"--pcrf"}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if args != nil {
				s.pcrf()
				args = append(args, s.at(31, diameter.Port))
			}
			s.pgw(args...)
			s.sgw(11)
			m := s.mme(1, 1)
			of := m.create(11, m.request(imsi(0), 1)).Sender.TEID
			m.sgwTEID.Store(of)
			created, deleted := m.bearers(accepted, 6)
			ask := gtpc.BearerResource{Linked: 5, PTI: 9, QoS: gtpc.QoS{QCI: 1, GuaranteedUp: 64, GuaranteedDown: 64}, TAD: voice()}
			if cause := m.resources(of, ask); cause != 0 {
				t.Fatalf("got cause %d", cause)
			}
			if got := <-created; got.PTI != 9 || got.Bearers[0].QoS.QCI != 1 || got.Bearers[0].QoS.GuaranteedUp != 64 || string(got.Bearers[0].TFT) != string(voice()) {
				t.Errorf("%+v", got)
			}
			free := gtpc.BearerResource{Linked: 5, PTI: 10, Bearer: 6, TAD: nas.AppendTFT(nil, nas.DeleteFilters, nas.Filter{})}
			// The P-GW takes it after the bearer is complete there, even if it comes before.
			if cause := m.resources(of, free); cause != 0 {
				t.Errorf("got cause %d", cause)
			}
			if got := <-deleted; got.PTI != 10 || got.Bearers[0] != 6 {
				t.Errorf("%+v", got)
			}
			for name, c := range map[string]struct {
				command gtpc.BearerResource
				want    gtpc.CauseValue
			}{
				"no such bearer":     {free, gtpc.ContextNotFound},
				"no such connection": {gtpc.BearerResource{Linked: 7, PTI: 1, TAD: voice()}, gtpc.ContextNotFound},
				"no template":        {gtpc.BearerResource{Linked: 5, PTI: 1, QoS: ask.QoS}, gtpc.TFTSyntactic},
				"a short template":   {gtpc.BearerResource{Linked: 5, PTI: 1, QoS: ask.QoS, TAD: voice()[:9]}, gtpc.TFTSyntactic},
				"another filter":     {gtpc.BearerResource{Linked: 5, PTI: 1, QoS: ask.QoS, TAD: []byte{0x21, 0x30, 0, 2, 0x30, 17}}, gtpc.FiltersSemantic},
			} {
				if cause := m.resources(of, c.command); cause != c.want {
					t.Errorf("%s: got cause %d, want %d", name, cause, c.want)
				}
			}
			if cause := m.resources(of+1000, ask); cause != gtpc.ContextNotFound {
				t.Errorf("unknown TEID: got cause %d", cause)
			}
		})
	}
}
