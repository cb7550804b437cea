package flex

import (
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"vitrine/document/schematest"
	"vitrine/flex/unit"
	"vitrine/internal/access"
	"vitrine/internal/vitals"
)

// served serves a rig's orchestrator over TCP without tokens, so clients may only read.
func served(t *testing.T) (*rig, func(method, path string) (status int, body string)) {
	t.Helper()
	r := newRig(t, "")
	for range 4 {
		r.step(t.Context())
	}
	guard := access.Guard{Service: "orchestrator", Tokens: func() access.Tokens { return nil }, Socket: "s", Log: slog.New(slog.DiscardHandler)}
	r.Version = "v1"
	server := httptest.NewServer(r.Handler(guard, vitals.Service{ReloadFailed: func() bool { return false }}))
	t.Cleanup(server.Close)
	return r, func(method, path string) (int, string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(body)
	}
}

func TestAPIAnswers(t *testing.T) {
	r, ask := served(t)
	status, body := ask(http.MethodGet, "/v1/status")
	var s Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || status != http.StatusOK || len(s.Instances) != 1 || s.Instances[0].Name != "registration-1" {
		t.Errorf("%d: %s, %v", status, body, err)
	}
	if !strings.Contains(body, `"memory":{`) || strings.Contains(body, "0001-01-01") {
		t.Errorf("got %s, want what the policy remembers, without times that are not set", body)
	}
	for path, want := range map[string]string{
		"/v1/events":                 `"kind":"start"`,
		"/v1/explain/registration":   "below the minimum of 1",
		"/v1/explain/registration-1": `"instance":{"name":"registration-1"`,
		"/metrics":                   `vitrine_flex_instances{state="starting",type="registration"} 1`,
		"/healthz":                   "serving",
		"/openapi.yaml":              "openapi: 3.1.0",
	} {
		if status, body := ask(http.MethodGet, path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d: %s", path, status, body)
		}
	}
	_, metrics := ask(http.MethodGet, "/metrics")
	for _, want := range []string{ // what has not happened is 0, so that alerts on it can fire
		`vitrine_flex_instances{state="active",type="registration"} 0`, `vitrine_flex_instances{state="failed",type="registration"} 0`,
		`vitrine_flex_deaths_total{type="registration"} 0`, `vitrine_flex_lost_total{type="registration"} 0`,
		`vitrine_flex_lost_dialogs_total{type="registration"} 0`,
		`vitrine_flex_state_failures_total 0`, `vitrine_flex_event_failures_total 0`, `vitrine_flex_reload_failed 0`,
		`vitrine_flex_build_info{version="v1"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics lacks %s:\n%s", want, metrics)
		}
	}
	if status, body := ask(http.MethodGet, "/v1/explain/nobody"); status != http.StatusNotFound || !strings.Contains(body, "no instance nobody") {
		t.Errorf("%d: %s", status, body)
	}
	if status, body := ask(http.MethodPost, "/v1/instances/registration-1/drain"); status != http.StatusForbidden || !strings.Contains(body, "unix socket s") {
		t.Errorf("drain without a token: got status %d: %s", status, body)
	}
	if r.instances["registration-1"].Manual {
		t.Error("the refused request drained the instance")
	}
}

// TestListsAreNeverNull checks that before the first step, lists are empty and not null, as the OpenAPI
// document says.
func TestListsAreNeverNull(t *testing.T) {
	r := newRig(t, "")
	for want, v := range map[string]any{`"types":[],"instances":[]}`: r.Status(), `[]`: r.Events()} {
		text, err := json.Marshal(v)
		if err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("got %s, error %v, want %s at the end", text, err, want)
		}
	}
}

// TestOpenAPIHasAllPaths checks that the document describes exactly the served paths and the
// members of all answers, and that clients made from it can send a token and expect refusals.
func TestOpenAPIHasAllPaths(t *testing.T) {
	r, ask := served(t)
	var document struct {
		Security   []map[string][]string
		Paths      map[string]map[string]struct{ Responses map[string]any }
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := yaml.Unmarshal(OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(document.Security, func(s map[string][]string) bool { return s["bearer"] != nil }) {
		t.Error("no request has a token")
	}
	open := access.OpenRoutes(OpenAPI)
	var documented []string
	for path, methods := range document.Paths {
		at := strings.ReplaceAll(path, "{name}", "registration-1")
		for method, operation := range methods {
			pattern := strings.ToUpper(method) + " " + path
			documented = append(documented, pattern)
			if open[pattern] == nil && operation.Responses["default"] == nil {
				t.Errorf("%s has no default response", pattern)
			}
			if status, body := ask(strings.ToUpper(method), at); status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d: %s", method, path, status, body)
			}
		}
	}
	slices.Sort(documented)
	routes := r.routes(vitals.Service{})
	maps.Copy(routes, open)
	if patterns := slices.Sorted(maps.Keys(routes)); !slices.Equal(documented, patterns) {
		t.Errorf("documented paths: %v\nserved paths: %v", documented, patterns)
	}
	for name, v := range map[string]any{
		"Status": Status{}, "Service": ServiceStatus{}, "Type": TypeStatus{}, "Memory": MemoryStatus{}, "Instance": InstanceStatus{},
		"Member": unit.Member{}, "Event": Event{}, "Explanation": Explanation{}, "Redline": RedlineStatus{}, "Measured": Measured{},
	} {
		documented := slices.Sorted(maps.Keys(document.Components.Schemas[name].Properties))
		if members := schematest.Members(v); !slices.Equal(documented, members) {
			t.Errorf("%s: documented members: %v\nmembers: %v", name, documented, members)
		}
	}
}
