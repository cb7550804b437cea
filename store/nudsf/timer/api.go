// Package timer is Nudsf_Timer (3GPP TS 29.598 clause 6.2) over an engine of the store. Consumers
// start, change, stop and search timers, and get a notification when a timer expires.
package timer

import (
	_ "embed"
	"net/http"

	"vitrine/store/nudsf/rest"
)

// service names the API in paths and in the engine's spaces.
const service = "nudsf-timer"

// Root is the path of the API.
const Root = "/" + service + "/v1"

// kindTimer is the prefix of the names of timers in a storage's space.
const kindTimer = "t/"

// OpenAPI describes the API: OpenAPI 3.0, YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// API is the handler of everything below Root.
type API struct {
	rest.Config
	mux *http.ServeMux
}

// New returns the API.
func New(config rest.Config) *API {
	a := &API{Config: config}
	a.mux = rest.Mux(Root, OpenAPI, rest.Routes{
		"/{realm}/{storage}/timers":           {"GET": a.searchTimers, "DELETE": a.deleteTimers},
		"/{realm}/{storage}/timers/{timerId}": {"GET": a.getTimer, "PUT": a.putTimer, "PATCH": a.patchTimer, "DELETE": a.deleteTimer},
	}, config)
	config.Agenda.Handle(service, kindTimer, a.expire)
	return a
}

// ServeHTTP serves a request below Root.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Operation returns the name of a request's operation for metrics, for example "timer put".
func Operation(r *http.Request) string { return "timer " + rest.Method(r) }
