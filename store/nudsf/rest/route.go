// Package rest is the code that the handlers of Nudsf_DataRepository and Nudsf_Timer share: routes,
// storages, queries, bodies, stored records, searches and deletions by filter, and problem details for
// errors.
package rest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/wire"
)

// Config of the API of records or of timers.
type Config struct {
	Engine   store.Engine
	Agenda   *due.Agenda      // must run for records, subscriptions and timers to expire
	Sender   *callback.Sender // must run for notifications to be sent
	Clock    func() time.Time
	Log      *slog.Logger
	Failed   func(status int) // called for each answer of status 500 or more
	Limits   wire.Limits
	Storages Storages // nil: every realm and storage exists
	APIRoot  string   // "https://store.example:8443", prefix of URIs; empty: URIs are paths

	SearchTime time.Duration // the longest duration of a search or a deletion by filter
	Room       *Room         // for all of them
}

// A Handler answers a request or returns an error to answer with: a *wire.Problem or an error of
// package store.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Routes maps a path to a handler for each method.
type Routes map[string]map[string]Handler

// Mux returns a handler for the routes below root ("/nudsf-dr/v1") and for the OpenAPI document. It
// answers other paths and methods with problem details.
func Mux(root string, document []byte, routes Routes, c Config) *http.ServeMux {
	mux := http.NewServeMux()
	routes["/openapi.yaml"] = map[string]Handler{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(document)
		return nil
	}}
	for path, methods := range routes {
		allowed := make([]string, 0, len(methods)+1)
		for method, h := range methods {
			mux.Handle(method+" "+root+path, c.serve(h))
			allowed = append(allowed, method)
		}
		if slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		mux.HandleFunc(root+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			wire.NewProblem(http.StatusMethodNotAllowed, "", "%s is not allowed here; %s are", r.Method, strings.Join(allowed, ", ")).Write(w)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		wire.NewProblem(http.StatusNotFound, wire.CauseNoSuchURI, "there is no resource %s", r.URL.Path).Write(w)
	})
	return mux
}

func (c *Config) serve(h Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		problem := Problem(err)
		if problem.Status >= http.StatusInternalServerError {
			c.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
			if r.Context().Err() == nil { // else the client is gone
				c.Failed(problem.Status)
			}
		}
		problem.Write(w)
	})
}

// Problem returns the problem details for an error.
func Problem(err error) *wire.Problem {
	var partial *Partial
	var problem *wire.Problem
	var busy *store.Busy
	var late *store.Late
	var over *overtime
	var large *store.TooLarge
	var invalid *store.Invalid
	var conflict *store.Conflict
	var body *http.MaxBytesError
	switch {
	case errors.As(err, &partial):
		return partial.problem()
	case errors.As(err, &problem):
		return problem
	case errors.As(err, &late), errors.As(err, &over): // an answer with a part would have a wrong count
		return wire.NewProblem(http.StatusServiceUnavailable, wire.CauseCongestion, "%v", err)
	case errors.As(err, &busy):
		p := wire.NewProblem(http.StatusServiceUnavailable, wire.CauseCongestion, "%v", err)
		p.RetryAfter = busy.RetryAfter
		return p
	case errors.As(err, &conflict):
		p := wire.NewProblem(http.StatusServiceUnavailable, wire.CauseCongestion, "too many concurrent changes of this resource: try again")
		p.RetryAfter = time.Second
		return p
	case errors.As(err, &large):
		return wire.NewProblem(http.StatusRequestEntityTooLarge, "", "%v", err)
	case errors.As(err, &body):
		return wire.NewProblem(http.StatusRequestEntityTooLarge, "", "the body is over %d bytes", body.Limit)
	case errors.As(err, &invalid):
		return wire.NewProblem(http.StatusBadRequest, wire.CauseIEIncorrect, "%v", err)
	case errors.Is(err, store.ErrFull):
		return wire.NewProblem(http.StatusInternalServerError, wire.CauseNoResources, "%v", err)
	case errors.Is(err, due.ErrSpaces):
		return wire.NewProblem(http.StatusInternalServerError, wire.CauseNoResources, "%v", err)
	case errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return wire.NewProblem(http.StatusServiceUnavailable, "", "the request was cut short: %v", err)
	}
	return wire.NewProblem(http.StatusInternalServerError, wire.CauseSystemFailure, "the store failed; its log says why")
}

// Method returns a request's method in lower case, or "other" for a method that no route uses.
func Method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut, http.MethodDelete, http.MethodPatch:
		return strings.ToLower(r.Method)
	}
	return "other"
}
