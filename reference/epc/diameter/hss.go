package diameter

import (
	"context"
	"fmt"
	"net"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/epc/aka"
)

// A Database answers the requests of MMEs. mme is the Diameter identity of the
// requesting MME. An error is a Result; any other error is answered with
// DIAMETER_UNABLE_TO_COMPLY.
type Database interface {
	Authenticate(mme string, r AuthenticationRequest) ([]aka.Vector, error)
	UpdateLocation(mme string, r LocationRequest) (Subscription, error)
	// Purge reports whether this MME was the one that served the subscriber.
	Purge(mme, imsi string) (served bool, err error)
}

// An HSS is the server side of S6a.
type HSS struct {
	*server
	cancelled *prometheus.CounterVec
}

// freezeTMSI is the PUA-Flag that tells an MME not to reuse the M-TMSI (TS 29.272
// clause 7.3.48).
const freezeTMSI = 1

// NewHSS returns an HSS.
func NewHSS(host string, d Database, registry prometheus.Registerer) *HSS {
	h := &HSS{
		server:    newServer(host, s6aApplication, registry, "hss"),
		cancelled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hss_cancellations_total", Help: "Cancel-Location-Requests, by what became of them."}, []string{"outcome"}),
	}
	registry.MustRegister(h.cancelled)
	h.handle(authenticationInformation, "authentication-information", func(mme string, s set) ([]*diam.AVP, error) {
		var r AuthenticationRequest
		if err := r.parse(s); err != nil {
			return nil, err
		}
		vectors, err := d.Authenticate(mme, r)
		if err != nil {
			return nil, err
		}
		return vectorAVPs(vectors), nil
	})
	h.handle(updateLocation, "update-location", func(mme string, s set) ([]*diam.AVP, error) {
		var r LocationRequest
		if err := r.parse(s); err != nil {
			return nil, err
		}
		subscription, err := d.UpdateLocation(mme, r)
		if err != nil {
			return nil, err
		}
		return subscription.avps(), nil
	})
	h.handle(purgeUE, "purge-ue", func(mme string, s set) ([]*diam.AVP, error) {
		var imsi string
		if err := subscriber(s, &imsi); err != nil {
			return nil, err
		}
		served, err := d.Purge(mme, imsi)
		if err != nil || !served {
			return nil, err
		}
		return []*diam.AVP{vendor(avp.PUAFlags, number(freezeTMSI))}, nil
	})
	h.machine.HandleIdx(diam.CommandIndex{AppID: s6aApplication, Code: cancelLocation}, diam.HandlerFunc(func(conn diam.Conn, m *diam.Message) {
		logReceived(h.Messages, conn, m, 0)
		if set(m.AVP).result() != nil {
			h.cancelled.WithLabelValues("refused").Inc()
			return
		}
		h.cancelled.WithLabelValues("done").Inc()
	}))
	return h
}

// Serve serves a listener until ctx is done.
func (h *HSS) Serve(ctx context.Context, l net.Listener) error { return h.serve(ctx, l) }

// mmeUpdate is the Cancellation-Type for a subscriber that now has another MME (TS
// 29.272 clause 7.3.24).
const mmeUpdate = 0

// Cancel makes an MME forget a subscriber that now has another MME (Cancel-Location,
// clause 5.2.1.2). It does not wait for the answer.
func (h *HSS) Cancel(mme, imsi string) {
	h.mu.Lock()
	conn := h.peers[mme].conn
	h.next++
	id := h.next
	h.mu.Unlock()
	if conn == nil {
		h.cancelled.WithLabelValues("unreachable").Inc()
		return
	}
	m := newRequest(cancelLocation, s6aApplication, id,
		base(avp.SessionID, datatype.UTF8String(fmt.Sprintf("%s;cancel;%d", h.host, id))),
		applicationAVP(s6aApplication),
		base(avp.AuthSessionState, datatype.Enumerated(noStateMaintained)),
		base(avp.OriginHost, datatype.DiameterIdentity(h.host)),
		base(avp.OriginRealm, datatype.DiameterIdentity(h.realm)),
		base(avp.DestinationHost, datatype.DiameterIdentity(mme)),
		base(avp.DestinationRealm, datatype.DiameterIdentity(h.realm)),
		base(avp.UserName, datatype.UTF8String(imsi)),
		vendor(avp.CancellationType, datatype.Enumerated(mmeUpdate)))
	if _, err := m.WriteTo(conn); err != nil {
		h.cancelled.WithLabelValues("unreachable").Inc()
		return
	}
	logSent(h.Messages, conn, m, 0)
	h.cancelled.WithLabelValues("sent").Inc()
}
