package director

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/table"
	"vitrine/internal/access"
)

// explainPath is the one POST that changes nothing.
const explainPath = "/v1/explain"

// maxBody is the maximum size of a request body, in bytes.
const maxBody = 4 << 20

// openControl opens or takes over the listener of the control interface.
func (d *Director) openControl(ctx context.Context, c *Config) error {
	tokens, err := access.ReadTokenFile(c.Control.TokenFile)
	if err != nil {
		return err
	}
	d.tokens.Store(tokens)
	if c.Control.Certificate != "" {
		if d.secure, err = access.LoadTLS(c.Control.Certificate, c.Control.Key, c.Control.Clients); err != nil {
			return c.locateTLS(err)
		}
	}
	l, err := d.options.Handover.listen(ctx, c.Listen.Control)
	if err != nil {
		return fmt.Errorf("listen for control at %s: %w", c.Listen.Control, err)
	}
	if d.secure != nil {
		l = tls.NewListener(l, d.secure.Config())
	}
	d.control = l
	return nil
}

// Control returns the address of the control interface.
func (d *Director) Control() string { return d.control.Addr().String() }

// serveControl serves the control interface until ctx is done.
func (d *Director) serveControl(ctx context.Context) error {
	server := access.NewServer(d.handler(), d.log)
	listeners := []net.Listener{d.control}
	if d.local != nil {
		listeners = append(listeners, d.local)
	}
	done := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { done <- server.Serve(l) }()
	}
	select {
	case err := <-done:
		return errors.Join(fmt.Errorf("serve control: %w", err), server.Close())
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		_ = server.Close() // remaining clients have had their time
	}
	for range listeners {
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			d.log.Warn("control ended with an error", "error", err)
		}
	}
	return context.Cause(ctx)
}

func (d *Director) handler() http.Handler {
	return d.guard().Handler(access.OpenRoutes(openAPI), d.routes())
}

// openAPI describes the routes: OpenAPI 3.1, YAML.
//
//go:embed openapi.yaml
var openAPI []byte

// routes returns the guarded handlers by pattern, as in http.ServeMux.
func (d *Director) routes() access.Routes {
	return access.Routes{
		"GET /v1/status":                   func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.status()) },
		"GET /v1/types":                    func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.types()) },
		"GET /v1/instances":                func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.instances()) },
		"PUT /v1/instances":                d.putInstances,
		"PATCH /v1/instances":              d.patchInstances,
		"GET /v1/instances/{name}":         d.getInstance,
		"PUT /v1/instances/{name}":         d.putInstance,
		"PATCH /v1/instances/{name}":       d.patchInstance,
		"DELETE /v1/instances/{name}":      d.deleteInstance,
		"GET /v1/rules":                    d.getRules,
		"PUT /v1/rules":                    d.putRules,
		"GET /v1/rooms":                    d.getRooms,
		"PUT /v1/rooms":                    d.putRooms,
		"GET /v1/leases":                   d.getLeases,
		"GET /v1/leases/{type}":            d.getLease,
		"POST /v1/leases/{type}":           d.postLease,
		"PATCH /v1/leases/{type}/{token}":  d.patchLease,
		"DELETE /v1/leases/{type}/{token}": d.deleteLease,
		"POST " + explainPath:              d.postExplain,
		"POST /v1/reload":                  d.postReload,
		"POST /v1/restart":                 d.postRestart,
		"GET /metrics":                     d.metricsHandler().ServeHTTP,
	}
}

func answer(w http.ResponseWriter, status int, v any) { access.Answer(w, status, v) }

func refuse(w http.ResponseWriter, status int, message string) { access.Refuse(w, status, message) }

// fail answers with the status for the kind of error.
func fail(w http.ResponseWriter, err error) {
	var absent *Absent
	var conflict *Conflict
	switch {
	case errors.As(err, &absent):
		refuse(w, http.StatusNotFound, err.Error())
	case errors.As(err, &conflict):
		refuse(w, http.StatusConflict, err.Error())
	case vitrine.IsBadInput(err), vitrine.IsUnsupported(err): // a new file with an error, or one that needs what this host lacks
		refuse(w, http.StatusBadRequest, explainError(err))
	case errors.Is(err, errFrozen):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, err.Error())
	default:
		refuse(w, http.StatusInternalServerError, err.Error())
	}
}

// read decodes a request's body. If that fails, read answers the request and returns
// false.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	in.DisallowUnknownFields()
	err := in.Decode(&into) // null sets into itself to nil
	if err == nil && into == nil {
		err = errors.New("null: want an object or a list")
	}
	if err == nil {
		if _, more := in.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
		}
	}
	if err == nil {
		return true
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("at most %d bytes", large.Limit))
		return false
	}
	refuse(w, http.StatusBadRequest, err.Error())
	return false
}

func (d *Director) status() client.Status {
	d.publishing.Lock()
	now, v := d.now(), d.epochs.View()
	since := now - d.state.Changed
	digest := d.state.Current.digest()
	first := d.state.Previous == nil
	published, unsaved := d.published, d.unsaved
	d.publishing.Unlock()
	version := d.roster.currentVersion()
	s := client.Status{
		Epoch: v.Table.Epoch(), Digest: digest, Pending: version != published, Changed: since.Seconds(), Transition: d.epochs.Transition().Seconds(),
		InTransition: !first && since < d.epochs.Transition(), Restarted: v.Previous(now) != nil, Types: v.Table.Types(),
		Panic: d.panics(), Begun: d.begun, PID: os.Getpid(), Version: d.options.Version, Steering: client.SteeringCounters(d.steered()),
		Unsaved: explainError(unsaved),
	}
	listen := d.config.Load().Listen
	s.SIP, s.GTPC, s.S1AP = d.listening(SIP, listen.SIP), d.listening(GTPC, listen.GTPC), d.listening(S1AP, listen.S1AP)
	if at, err := d.lastReload(); !at.IsZero() {
		s.Reload = &client.Reload{At: at, Error: explainError(err)}
	}
	if _, at, err := d.handovers.read(); err != nil {
		s.Restart = &client.Restart{At: at, Error: explainError(err)}
	}
	return s
}

// listening returns the listeners of a protocol with the ports that the kernel chose.
func (d *Director) listening(protocol string, configured []string) (all []string) {
	for _, p := range d.protocols {
		if p.name != protocol {
			continue
		}
		for i, a := range p.Addresses() {
			if l, err := ParseListener(configured[i]); err == nil {
				all = append(all, Listener{l.Network, a}.String())
			}
		}
	}
	return all
}

// digest returns a hash that differs between tables that steer differently.
func (e *epochState) digest() string {
	same := *e
	same.Epoch = 0
	return digestOf(same)
}

// digestOf returns a hash of a value as JSON.
func digestOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // v holds nothing that JSON cannot
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// steered adds up the counters of all workers.
func (d *Director) steered() (sum table.Counters) {
	for _, p := range d.protocols {
		for _, s := range p.Steerings() {
			sum.Add(s.Counters())
		}
	}
	return sum
}

func (d *Director) postReload(w http.ResponseWriter, _ *http.Request) {
	if err := d.reload(); err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, d.status())
}

func (d *Director) postRestart(w http.ResponseWriter, _ *http.Request) {
	if err := d.refuseRestart(); err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	select {
	case d.restarts <- struct{}{}:
	default: // a restart is pending already
	}
	answer(w, http.StatusAccepted, map[string]string{"state": "handing over"})
}
