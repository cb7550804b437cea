package pcrf

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"vitrine/reference/epc/diameter"
)

// A session is a Gx session.
type session struct {
	imsi string
	pgw  string // Diameter identity of the session's P-GW
}

// rules make decisions by the access point name.
type rules struct {
	qos   diameter.QoS
	limit int

	mu       sync.Mutex
	sessions map[string]session // by identity
	latest   map[string]string  // the latest session of an IMSI
	named    uint64             // number of the last rule made for a UE
}

func newRules() *rules {
	return &rules{sessions: map[string]session{}, latest: map[string]string{}}
}

// Begin admits a session with the QoS of its APN, the rates that the P-GW requests,
// and one predefined rule. It replaces a session with the same identity.
func (r *rules) Begin(id, pgw string, request diameter.GxRequest) (diameter.Policy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, known := r.sessions[id]; known {
		r.drop(id, old)
	} else if len(r.sessions) >= r.limit {
		return diameter.Policy{}, diameter.TooBusy
	}
	r.sessions[id], r.latest[request.IMSI] = session{request.IMSI, pgw}, id
	policy := diameter.Policy{QoS: r.qos, AMBR: request.AMBR, Rules: []string{"default"}}
	if request.APN == "ims" { // signalling (TS 23.203 table 6.1.7)
		policy.QoS.QCI, policy.QoS.Priority = 5, 1
	}
	return policy, nil
}

// Update grants a UE the bearer that it requests, or releases it.
func (r *rules) Update(id string, request diameter.ResourceRequest) (diameter.Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch _, known := r.sessions[id]; {
	case !known:
		return diameter.Change{}, diameter.UnknownSession
	case request.Release != "":
		return diameter.Change{Remove: []string{request.Release}}, nil
	case request.QCI == 0:
		return diameter.Change{}, diameter.MissingAVP
	}
	r.named++
	return diameter.Change{Install: []diameter.Rule{r.rule("ue-"+strconv.FormatUint(r.named, 10), request)}}, nil
}

// rule returns a rule for a flow. The guaranteed rates are also its maximum rates.
func (r *rules) rule(name string, of diameter.ResourceRequest) diameter.Rule {
	qos := r.qos
	qos.QCI = of.QCI
	return diameter.Rule{
		Name: name, QoS: qos, MaxUp: of.UpRate, MaxDown: of.DownRate, GuaranteedUp: of.UpRate, GuaranteedDown: of.DownRate,
		Flows: []string{of.Flow},
	}
}

// End ends a session.
func (r *rules) End(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, known := r.sessions[id]
	if !known {
		return diameter.UnknownSession
	}
	r.drop(id, of)
	return nil
}

// Restarted removes the sessions of a P-GW that has lost them.
func (r *rules) Restarted(pgw string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, of := range r.sessions {
		if of.pgw == pgw {
			r.drop(id, of)
		}
	}
}

// drop removes a session. The caller holds mu.
func (r *rules) drop(id string, of session) {
	delete(r.sessions, id)
	if r.latest[of.imsi] == id {
		delete(r.latest, of.imsi)
	}
}

// count returns the number of sessions.
func (r *rules) count() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(len(r.sessions))
}

// find returns the latest session of an IMSI.
func (r *rules) find(imsi string) (id string, of session, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, ok = r.latest[imsi]
	return id, r.sessions[id], ok
}

// changer changes the rules of a session at its P-GW.
type changer func(ctx context.Context, session, pgw string, c diameter.Change) error

// handler handles PUT and DELETE /rules/IMSI/NAME: an application requests or
// releases a dedicated bearer. It replaces Rx (TS 29.214).
func (r *rules) handler(change changer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /rules/{imsi}/{name}", func(w http.ResponseWriter, request *http.Request) {
		flow, err := parseFlow(request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.serve(w, request, change, diameter.Change{Install: []diameter.Rule{r.rule(request.PathValue("name"), flow)}})
	})
	mux.HandleFunc("DELETE /rules/{imsi}/{name}", func(w http.ResponseWriter, request *http.Request) {
		r.serve(w, request, change, diameter.Change{Remove: []string{request.PathValue("name")}})
	})
	return mux
}

// maxName limits the name of a rule, in octets. A Re-Auth-Request has the name twice, and
// a P-GW ends a connection with a message of more than 8 KiB.
const maxName = 100

// serve makes a change, and answers once the P-GW has made or refused it.
func (r *rules) serve(w http.ResponseWriter, request *http.Request, change changer, c diameter.Change) {
	if n := len(request.PathValue("name")); n > maxName {
		http.Error(w, fmt.Sprintf("the rule's name has %d octets, want at most %d", n, maxName), http.StatusBadRequest)
		return
	}
	id, of, ok := r.find(request.PathValue("imsi"))
	if !ok {
		http.Error(w, "no session", http.StatusNotFound)
		return
	}
	err := change(request.Context(), id, of.pgw, c)
	var refused diameter.Result
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &refused):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		http.Error(w, err.Error(), http.StatusGatewayTimeout)
	}
}

// parseFlow parses the parameters of a rule: qci, and the guaranteed rates up and
// down in kbit/s, by default 0.
func parseFlow(request *http.Request) (flow diameter.ResourceRequest, err error) {
	// The remote end is an address for documentation (RFC 5737), because there is no
	// user plane.
	flow = diameter.ResourceRequest{QCI: 1, Flow: "permit out 17 from 192.0.2.1 5004 to assigned"}
	for name, set := range map[string]func(uint64){
		"qci":  func(v uint64) { flow.QCI = uint8(v) },
		"up":   func(v uint64) { flow.UpRate = uint32(v * 1000) },
		"down": func(v uint64) { flow.DownRate = uint32(v * 1000) },
	} {
		text := request.FormValue(name)
		if text == "" {
			continue
		}
		highest := uint64(4_000_000) // kbit/s, because the AVPs have 32 bits for bit/s
		if name == "qci" {
			highest = 254
		}
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil || v > highest || name == "qci" && v == 0 {
			return flow, fmt.Errorf("%s is %q, want a whole number of at most %d", name, text, highest)
		}
		set(v)
	}
	return flow, nil
}
