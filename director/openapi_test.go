package director

import (
	"bytes"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"vitrine/director/client"
	"vitrine/document/schematest"
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

// TestOpenAPIHasAllMembers checks that the document has the members of requests and answers, and no others.
func TestOpenAPIHasAllMembers(t *testing.T) {
	schemas := readOpenAPI(t).Components.Schemas
	for name, v := range map[string]any{
		"status": client.Status{}, "outcome": client.Reload{}, "type": client.Type{}, "lease": client.Lease{}, "rules": client.Rule{}, "rooms": client.Room{},
		"instance": client.Instance{}, "alteredInstance": alteredInstance{}, "givenInstance": givenInstance{}, "change": client.Change{},
		"question": client.Question{}, "explanation": client.Explanation{},
	} {
		schema := schemas[name].Value
		if schema.Items != nil {
			schema = schema.Items.Value
		}
		documented := slices.Collect(maps.Keys(schema.Properties))
		for _, part := range schema.AllOf {
			documented = slices.AppendSeq(documented, maps.Keys(part.Value.Properties))
		}
		slices.Sort(documented)
		if members := schematest.Members(v); !slices.Equal(documented, members) {
			t.Errorf("%s: documented members: %v\nmembers: %v", name, documented, members)
		}
	}
}

// An apiCall is a request, and the status of its answer.
type apiCall struct {
	method, path, body string
	status             int
}

// TestOpenAPIDescribesExchanges sends requests to all routes, and checks all answers against the document.
// The document must allow what the director takes, and forbid what gets status 400.
func TestOpenAPIDescribesExchanges(t *testing.T) {
	r := runGood(t)
	doc := readOpenAPI(t)
	doc.Servers = openapi3.Servers{{URL: "http://director"}}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, c := range []apiCall{
		{"GET", "/v1/status", "", 200},
		{"GET", "/v1/types", "", 200},
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
		{"PUT", "/v1/instances/reg-9", `{"type": "registration", "address": "127.0.0.1:15079", "weight": 5, "region": "eu", "state": "starting", "id": 9}`, 201},
		{"PUT", "/v1/instances/reg-9", `{"type": "registration", "address": "127.0.0.1:15079"}`, 200},
		{"PUT", "/v1/instances/reg-9", `{"type": "registration"}`, 400},
		{"PUT", "/v1/instances/reg-9", `{"type": "registration", "address": "127.0.0.1:15079", "weight": 0}`, 400},
		{"PUT", "/v1/instances/reg-9", `{"type": "registration", "address": "127.0.0.1:15079", "state": ""}`, 400},
		{"PUT", "/v1/instances/reg-9", `{"type": "registration", "address": "127.0.0.1:15079", "more": 1}`, 400},
		{"PATCH", "/v1/instances/reg-9", `{"weight": 7, "state": "draining", "region": ""}`, 200},
		{"PATCH", "/v1/instances/reg-9", `{"weight": 0}`, 400},
		{"PATCH", "/v1/instances/reg-9", `{"state": ""}`, 400},
		{"PATCH", "/v1/instances", `{"reg-9": {"weight": 8}, "reg-1": {}}`, 200},
		{"PATCH", "/v1/instances", `{"reg-9": 8}`, 400},
		{"DELETE", "/v1/instances/reg-9", "", 200},
		{"DELETE", "/v1/instances/reg-9", "", 404},
		{"PUT", "/v1/instances", `[{"name": "reg-1", "type": "registration", "address": "127.0.0.1:15061"}, {"name": "ses-1", "type": "session", "address": "127.0.0.1:15063"}]`, 200},
		{"PUT", "/v1/instances", `[{"type": "registration", "address": "127.0.0.1:15061"}]`, 400},
		{"PUT", "/v1/rules", `[{"method": "REGISTER", "key": "from", "type": "registration"}, {"type": "session"}]`, 200},
		{"PUT", "/v1/rules", `[{"key": "via", "type": "session"}]`, 400},
		{"PUT", "/v1/rules", `[{"methd": "REGISTER", "type": "session"}]`, 400},
		{"GET", "/v1/rules", "", 200},
		{"PUT", "/v1/rooms", `[{"type": "session", "region": "eu", "share": 0.5}]`, 200},
		{"PUT", "/v1/rooms", `[{"type": "session", "region": "eu"}]`, 400},
		{"GET", "/v1/rooms", "", 200},
		{"POST", "/v1/explain", `{"type": "session", "key": "x", "from": "127.0.0.1:9"}`, 200},
		{"POST", "/v1/explain", `{"message": "` + base64.StdEncoding.EncodeToString(request("REGISTER", "x")) + `"}`, 200},
		{"POST", "/v1/explain", `{"mesage": ""}`, 400},
		{"POST", "/v1/reload", "", 200},
		{"POST", "/v1/restart", "", 409},
		{"GET", "/metrics", "", 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/openapi.yaml", "", 200},
	} {
		asked[r.checkExchange(t, router, c)] = true
	}
	routes := r.routes()
	maps.Copy(routes, access.OpenRoutes(openAPI))
	if all, served := slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(routes)); !slices.Equal(all, served) {
		t.Errorf("asked routes: %v\nserved routes: %v", all, served)
	}
}

// checkExchange sends a request, and checks both the request and its answer against the document. It returns
// the pattern of the route.
func (r *running) checkExchange(t *testing.T, router routers.Router, c apiCall) (pattern string) {
	t.Helper()
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
	return route.Method + " " + route.Path
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
