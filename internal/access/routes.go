package access

import (
	"net/http"
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
	m.Handle("/", g.Wrap(guarded.mux()))
	return m
}

func (r Routes) mux() *http.ServeMux {
	m := http.NewServeMux()
	for pattern, serve := range r {
		m.HandleFunc(pattern, serve)
	}
	return m
}
