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
// no others, and that clients made from it can send a token and expect refusals.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	doc, open := readOpenAPI(t), access.OpenRoutes(openAPI)
	var documented []string
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			pattern := method + " " + path
			documented = append(documented, pattern)
			if open[pattern] == nil && operation.Responses.Default() == nil {
				t.Errorf("%s has no default response", pattern)
			}
		}
	}
	if !slices.ContainsFunc(doc.Security, func(r openapi3.SecurityRequirement) bool { return r["bearer"] != nil }) {
		t.Error("no request has a token")
	}
	slices.Sort(documented)
	routes := newDirector(t, good).routes()
	maps.Copy(routes, open)
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
		input := &openapi3filter.RequestValidationInput{
			Request: request, PathParams: params, Route: route,
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
		}
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

// TestNullRemovesNothing sends null in place of a list, as jq prints it for a field that it does not find.
func TestNullRemovesNothing(t *testing.T) {
	r := runGood(t)
	for _, path := range []string{"/v1/instances", "/v1/rules", "/v1/rooms"} {
		if status, _, body := r.request(t, http.MethodPut, path, "null"); status != http.StatusBadRequest {
			t.Errorf("PUT %s: got %d %s, want status 400", path, status, body)
		}
	}
	instances, err := r.client.Instances(t.Context())
	if err != nil || len(instances) != 3 {
		t.Errorf("got %d instances, error %v, want 3", len(instances), err)
	}
	rules, err := r.client.Rules(t.Context())
	if err != nil || len(rules) != 2 {
		t.Errorf("got %d rules, error %v, want 2", len(rules), err)
	}
	if err := r.client.PutRooms(t.Context(), nil); err != nil { // the client sends []
		t.Error(err)
	}
	if err := r.client.AlterAll(t.Context(), nil); err != nil { // the client sends {}
		t.Error(err)
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
