package homestead

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims"
	"vitrine/reference/ims/replica"
	"vitrine/reference/ims/rest"
)

// A server answers Sprout from the replicated subscriber database. The paths
// and documents are Clearwater's:
//
//	GET /impi/PRIVATE/av?impu=PUBLIC   -> ims.AuthVector as JSON
//	GET /impu/PUBLIC/reg-data          -> ims.RegData as XML
//	PUT /impu/PUBLIC/reg-data          ims.RegRequest as JSON -> ims.RegData as XML
//	GET /ping
type server struct {
	rows     *replica.Store
	log      *slog.Logger
	requests *prometheus.CounterVec
}

func (s *server) handler() http.Handler {
	mux := rest.NewMux()
	mux.HandleFunc("GET /impi/{impi}/av", s.vector)
	mux.HandleFunc("GET /impu/{impu}/reg-data", s.read)
	mux.HandleFunc("PUT /impu/{impu}/reg-data", s.write)
	return mux
}

// row reads a row into into. On failure it answers the request and returns false.
func (s *server) row(w http.ResponseWriter, r *http.Request, key string, into any) (replica.Record, bool) {
	record, err := s.rows.Get(r.Context(), key)
	switch {
	case err != nil:
		s.fail(w, http.StatusServiceUnavailable, err)
		return record, false
	case record.Version == 0:
		http.Error(w, "no such subscriber", http.StatusNotFound)
		return record, false
	}
	if err := json.Unmarshal(record.Value, into); err != nil {
		s.fail(w, http.StatusInternalServerError, fmt.Errorf("row %s: %w", key, err))
		return record, false
	}
	return record, true
}

func (s *server) fail(w http.ResponseWriter, status int, err error) {
	s.log.Warn("a request failed", "status", status, "error", err)
	http.Error(w, err.Error(), status)
}

// vector handles the Multimedia-Auth of TS 29.228 section 6.3.
func (s *server) vector(w http.ResponseWriter, r *http.Request) {
	s.requests.WithLabelValues("av").Inc()
	var c credential
	if _, ok := s.row(w, r, privateRow+r.PathValue("impi"), &c); !ok {
		return
	}
	if impu := r.URL.Query().Get("impu"); impu != "" && !slices.Contains(c.Public, impu) {
		http.Error(w, "the public identity does not belong to this private identity", http.StatusForbidden)
		return
	}
	var v ims.AuthVector
	v.Digest.HA1, v.Digest.Realm, v.Digest.QoP = c.HA1, c.Realm, c.QoP
	body, err := json.Marshal(v)
	if err != nil {
		s.fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (s *server) read(w http.ResponseWriter, r *http.Request) {
	s.requests.WithLabelValues("read").Inc()
	var row registration
	if _, ok := s.row(w, r, publicRow+r.PathValue("impu"), &row); ok {
		s.answer(w, row)
	}
}

// write handles the Server-Assignment of TS 29.228 section 6.1.2.
func (s *server) write(w http.ResponseWriter, r *http.Request) {
	request, ok := rest.Body(w, r, parseRegRequest)
	if !ok {
		return
	}
	s.requests.WithLabelValues(request.Type).Inc()
	key := publicRow + r.PathValue("impu")
	for range 5 {
		var row registration
		record, ok := s.row(w, r, key, &row)
		if !ok {
			return
		}
		if !assign(&row, request, time.Now()) {
			s.answer(w, row)
			return
		}
		value, err := json.Marshal(row)
		if err == nil {
			_, err = s.rows.Put(r.Context(), key, replica.Record{Value: value}, record.Version)
		}
		switch {
		case err == nil:
			s.answer(w, row)
			return
		case !errors.Is(err, replica.ErrConflict):
			s.fail(w, http.StatusServiceUnavailable, err)
			return
		}
	}
	s.fail(w, http.StatusServiceUnavailable, fmt.Errorf("write %s: too many conflicting writes", key))
}

// parseRegRequest parses the body of a PUT of reg-data.
func parseRegRequest(body []byte) (ims.RegRequest, error) {
	var request ims.RegRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return request, fmt.Errorf("not a reg-data request: %w", err)
	}
	switch request.Type {
	case ims.RequestReg, ims.RequestDeregUser, ims.RequestDeregTimeout, ims.RequestCall:
		return request, nil
	}
	return request, fmt.Errorf("not a reg-data request: reqtype %q", request.Type)
}

// assign changes a row as requested, and reports whether it must be written.
func assign(row *registration, request ims.RegRequest, now time.Time) bool {
	switch request.Type {
	case ims.RequestReg:
		row.State, row.Server = ims.StateRegistered, request.Server
	case ims.RequestDeregUser, ims.RequestDeregTimeout:
		row.State, row.Server = ims.StateNotRegistered, ""
	default:
		return false
	}
	row.Changed = now
	return true
}

func (s *server) answer(w http.ResponseWriter, row registration) {
	body, err := document(row)
	if err != nil {
		s.fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = w.Write(body)
}
