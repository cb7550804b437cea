package flex

import (
	_ "embed"
	"errors"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"vitrine/internal/access"
	"vitrine/internal/vitals"
)

// OpenAPI describes the REST interface.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Handler returns the REST interface. The guard protects everything except /healthz and
// /openapi.yaml. /metrics includes the metrics of self, whose prefix and version Handler sets.
func (o *Orchestrator) Handler(guard access.Guard, self vitals.Service) http.Handler {
	return guard.Handler(access.OpenRoutes(OpenAPI), o.routes(self))
}

// routes returns the guarded handlers by pattern, as in http.ServeMux.
func (o *Orchestrator) routes(self vitals.Service) access.Routes {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{o})
	o.counted.register(registry)
	self.Prefix, self.Version = prefix, o.Version
	self.Register(registry)
	return access.Routes{
		"GET /v1/status":                  func(w http.ResponseWriter, _ *http.Request) { access.Answer(w, http.StatusOK, o.Status()) },
		"GET /v1/events":                  func(w http.ResponseWriter, _ *http.Request) { access.Answer(w, http.StatusOK, o.Events()) },
		"GET /v1/explain/{name}":          o.getExplanation,
		"POST /v1/instances/{name}/drain": o.postDrain,
		"GET /metrics":                    promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP,
	}
}

func (o *Orchestrator) postDrain(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if err := o.Drain(name); err != nil {
		fail(w, err)
		return
	}
	access.Answer(w, http.StatusAccepted, map[string]string{"draining": name})
}

func (o *Orchestrator) getExplanation(w http.ResponseWriter, r *http.Request) {
	e, err := o.Explain(r.PathValue("name"))
	if err != nil {
		fail(w, err)
		return
	}
	access.Answer(w, http.StatusOK, e)
}

func fail(w http.ResponseWriter, err error) {
	if absent := (*Absent)(nil); errors.As(err, &absent) {
		access.Refuse(w, http.StatusNotFound, err.Error())
		return
	}
	access.Refuse(w, http.StatusInternalServerError, err.Error())
}

// An Explanation explains the number of instances of a type, or the state of an instance.
type Explanation struct {
	Type     *TypeStatus     `json:"type,omitempty"`
	Instance *InstanceStatus `json:"instance,omitempty"`
	Away     []string        `json:"away,omitempty"`
	Measured []Measured      `json:"measured,omitempty"` // The type's capacity profile: measurements by redline, oldest first.
	Events   []Event         `json:"events"`             // The last mostExplained events, oldest first.
}

// mostExplained bounds the events of an Explanation.
const mostExplained = 20

// Explain explains a type or an instance. The events include those that concern all types, such as alerts about
// the store. A removed instance is explained by its own events. The error for an unknown name is an *Absent.
func (o *Orchestrator) Explain(name string) (e Explanation, err error) {
	s := o.Status()
	e.Away = s.Away
	for i := range s.Types {
		if s.Types[i].Name == name {
			e.Type = &s.Types[i]
			if r := e.Type.Redline; r != nil {
				e.Measured = r.history
			}
		}
	}
	for i := range s.Instances {
		if s.Instances[i].Name == name {
			e.Instance = &s.Instances[i]
		}
	}
	exists := e.Type != nil || e.Instance != nil
	about := func(event Event) bool {
		general := event.Type == "" && event.Instance == ""
		return event.Type == name || event.Instance == name || general && exists
	}
	e.Events = slices.DeleteFunc(o.Events(), func(event Event) bool { return !about(event) })
	e.Events = e.Events[max(0, len(e.Events)-mostExplained):]
	if !exists && len(e.Events) == 0 {
		return e, &Absent{Instance: name}
	}
	return e, nil
}
