package access

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUnknownRoutesAreRefusedInJSON checks that an unknown path and an unknown method are answered like all
// other errors, so that clients need to read one form only.
func TestUnknownRoutesAreRefusedInJSON(t *testing.T) {
	named := func(w http.ResponseWriter, r *http.Request) { Answer(w, http.StatusOK, r.PathValue("name")) }
	g := Guard{Service: "director", Tokens: func() Tokens { return nil }, Reads: []string{"/v1/things/one", "/healthz"}, Log: slog.New(slog.DiscardHandler)}
	h := g.Handler(OpenRoutes(nil), Routes{"GET /v1/things/{name}": named, "PUT /v1/things/{name}": named})
	for _, c := range []struct {
		method, path string
		status       int
		allow, want  string
	}{
		{http.MethodGet, "/v1/things/one", http.StatusOK, "", `"one"`},
		{http.MethodGet, "/v1/nothing", http.StatusNotFound, "", "there is no path /v1/nothing"},
		{http.MethodPost, "/healthz", http.StatusNotFound, "", "there is no path /healthz"},
		{http.MethodPost, "/v1/things/one", http.StatusMethodNotAllowed, "GET, HEAD, PUT", "POST is not allowed here: use GET, HEAD, PUT"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1"+c.path, http.NoBody))
		if w.Code != c.status || w.Header().Get("Allow") != c.allow || w.Header().Get("Content-Type") != "application/json" || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: got status %d, %v: %s, want status %d with %q", c.method, c.path, w.Code, w.Header(), w.Body, c.status, c.want)
		}
		var refusal struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &refusal); c.status >= 400 && (err != nil || refusal.Error != c.want) {
			t.Errorf("%s %s: got error %q, %v, want %q", c.method, c.path, refusal.Error, err, c.want)
		}
	}
}
