package sgw

import (
	"context"
	"encoding/json"
	"net/http"

	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// A notified is the JSON answer to a downlink packet.
type notified struct {
	Paged bool            `json:"paged"` // false: the UE is connected
	Cause gtpc.CauseValue `json:"cause,omitempty"`
}

// downlinks handles POST /downlink/IMSI, which stands for a downlink packet for a
// UE. If the UE is idle, the S-GW asks the MME to page it.
func (s *server) downlinks() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /downlink/{imsi}", func(w http.ResponseWriter, r *http.Request) {
		imsi, ok := identity.MakeDigits(r.PathValue("imsi"))
		if !ok {
			http.Error(w, "not an IMSI", http.StatusBadRequest)
			return
		}
		answer, status := s.packet(r.Context(), imsi)
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
	return mux
}

// packet handles a downlink packet for the default bearer of the UE's first connection (TS
// 23.401 clause 5.3.4.3). It also returns the HTTP status.
func (s *server) packet(ctx context.Context, imsi identity.Digits) (notified, int) {
	s.mu.Lock()
	of := s.ues[imsi]
	var found *gtpc.Bearer
	if of != nil && len(of.connections) > 0 {
		first := of.connections[0]
		found = first.find(first.ebi) // not the first bearer: a dedicated one may be there before it
	}
	if found == nil {
		s.mu.Unlock()
		return notified{}, http.StatusNotFound
	}
	bearer, mme := *found, of.mme
	s.mu.Unlock()
	if bearer.ENB.Addr().IsValid() {
		return notified{}, http.StatusOK
	}
	request := gtpc.DownlinkDataNotification{EBI: bearer.EBI, Priority: bearer.QoS.Priority}
	var answer gtpc.Answer
	if err := s.endpoint.Do(ctx, mme.At, mme.TEID, &request, &answer); err != nil {
		result := replyError(err)
		s.procedures.Count(gtpc.DownlinkData, result.Cause)
		return notified{}, http.StatusGatewayTimeout
	}
	s.procedures.Count(gtpc.DownlinkData, answer.Result.Cause)
	return notified{Paged: answer.Result.Cause.Accepted(), Cause: answer.Result.Cause}, http.StatusOK
}
