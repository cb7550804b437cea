package access

import (
	"log/slog"
	"net/http"
	"time"
)

// Routes are handlers by pattern, as in http.ServeMux.
type Routes map[string]http.HandlerFunc

// OpenRoutes returns the routes that need no token: whether the service runs, and its OpenAPI
// document in YAML.
func OpenRoutes(openAPI []byte) Routes {
	return Routes{
		"GET /healthz": func(w http.ResponseWriter, _ *http.Request) {
			Answer(w, http.StatusOK, map[string]string{"state": "serving"})
		},
		"GET /openapi.yaml": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write(openAPI) // it fails only if the client has gone
		},
	}
}

// Handler serves the open routes to everybody, and guards the others.
func (g Guard) Handler(open, guarded Routes) http.Handler {
	m := open.mux()
	m.Handle("/", g.Wrap(refuseInJSON(guarded.mux())))
	return m
}

// refuseInJSON serves the routes of a mux. An unknown path or method gets the status and the headers that
// the mux answers with, and its error as Refuse writes it.
func refuseInJSON(m *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		none, pattern := m.Handler(r)
		if pattern != "" {
			m.ServeHTTP(w, r) // none.ServeHTTP would not set the path's values
			return
		}
		answer := &withoutBody{ResponseWriter: w}
		none.ServeHTTP(answer, r)
		why := "there is no path " + r.URL.Path
		if allowed := w.Header().Get("Allow"); allowed != "" {
			why = r.Method + " is not allowed here: use " + allowed
		}
		Refuse(w, answer.status, why)
	})
}

// A withoutBody takes the answer of a handler without its body, and does not send the status.
type withoutBody struct {
	http.ResponseWriter
	status int
}

func (a *withoutBody) WriteHeader(status int)      { a.status = status }
func (a *withoutBody) Write(b []byte) (int, error) { return len(b), nil }

// NewServer returns a server of a control interface. Its limits keep slow clients from holding
// connections for long.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

func (r Routes) mux() *http.ServeMux {
	m := http.NewServeMux()
	for pattern, serve := range r {
		m.HandleFunc(pattern, serve)
	}
	return m
}
