package director

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"vitrine/internal/access"
)

func readOpenAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err == nil {
		err = doc.Validate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestOpenAPIHasAllRoutes checks that the document has the routes that the director serves, and
// no others.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	var documented []string
	for path, item := range readOpenAPI(t).Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(documented)
	routes := newDirector(t, good).routes()
	maps.Copy(routes, access.OpenRoutes(openAPI))
	if served := slices.Sorted(maps.Keys(routes)); !slices.Equal(documented, served) {
		t.Errorf("documented paths: %v\nserved paths: %v", documented, served)
	}
}

// TestOpenAPIDescribesLeases sends requests about leases, and checks the requests that succeed, and
// all answers, against the document.
func TestOpenAPIDescribesLeases(t *testing.T) {
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good))
	doc := readOpenAPI(t)
	doc.Servers = openapi3.Servers{{URL: "http://director"}}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/leases/registration", "", 200},
		{"POST", "/v1/leases/registration", `{"holder": "test", "ttl_seconds": 60, "token": 4, "weights": {"reg-1": 0}}`, 201},
		{"POST", "/v1/leases/registration", `{"holder": "other", "ttl_seconds": 60}`, 409},
		{"POST", "/v1/leases/registration", `{"holder": "other", "ttl_seconds": 0.5}`, 400},
		{"POST", "/v1/leases/registration", `{"holder": "other", "ttl_seconds": 60, "more": 1}`, 400},
		{"GET", "/v1/leases", "", 200},
		{"GET", "/v1/instances", "", 200},
		{"GET", "/v1/instances/reg-1", "", 200},
		{"PATCH", "/v1/leases/registration/4", `{"weights": {"reg-1": 200.5}}`, 200},
		{"PATCH", "/v1/leases/registration/3", `{}`, 409},
		{"PATCH", "/v1/leases/registration/none", `{}`, 400},
		{"DELETE", "/v1/leases/registration/4", "", 200},
		{"DELETE", "/v1/leases/registration/3", "", 409},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, "http://director"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		route, params, err := router.FindRoute(request)
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		input := &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: route}
		if wrong := openapi3filter.ValidateRequest(t.Context(), input); (wrong != nil) != (c.status == 400) {
			t.Errorf("%s %s %s: the OpenAPI document reports %v, want status %d", c.method, c.path, c.body, wrong, c.status)
		}
		status, header, body := r.request(t, c.method, c.path, c.body)
		if status != c.status {
			t.Errorf("%s %s %s: got %d %s, want status %d", c.method, c.path, c.body, status, body, c.status)
		}
		answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: status, Header: header, Body: io.NopCloser(bytes.NewReader(body))}
		if err := openapi3filter.ValidateResponse(t.Context(), answer); err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
	}
}

// request sends a request by the director's unix socket.
func (r *running) request(t *testing.T, method, path, body string) (status int, header http.Header, text []byte) {
	t.Helper()
	in, err := http.NewRequestWithContext(t.Context(), method, "http://director"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := r.bySocket(t).Do(in)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, text
}
