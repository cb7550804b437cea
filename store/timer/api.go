// Package timer is Nudsf_Timer (3GPP TS 29.598 clause 6.2) over an engine of the
// store: timers that consumers start, change, stop and search by tags, and of whose
// expiry they are told.
package timer

import (
	_ "embed"
	"log/slog"
	"net/http"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// service names the API in paths, and its spaces in the engine.
const service = "nudsf-timer"

// Root is the path below which the API is.
const Root = "/" + service + "/v1"

// kindTimer begins the names of timers in a storage's space.
const kindTimer = "t/"

// OpenAPI describes the API: OpenAPI 3.0, YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config of an API.
type Config struct {
	Engine   store.Engine
	Agenda   *due.Agenda
	Sender   *callback.Sender
	Clock    func() time.Time
	Log      *slog.Logger  // nil: none
	Limits   wire.Limits   // zero: wire.DefaultLimits
	Storages rest.Storages // nil: every realm and storage is there
	APIRoot  string        // "https://store.example:8443", before paths in URIs; empty: URIs are paths alone
}

// API is the handler of everything below Root.
type API struct {
	Config
	mux *http.ServeMux
}

// New makes the API. Its Agenda must run for timers to expire, its Sender for
// consumers to be told.
func New(config Config) *API {
	if config.Limits == (wire.Limits{}) {
		config.Limits = wire.DefaultLimits()
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{Config: config}
	a.mux = rest.Mux(Root, rest.Routes{
		"/openapi.yaml":                     {"GET": a.openAPI},
		"/{realm}/{storage}/timers":         {"GET": a.searchTimers, "DELETE": a.deleteTimers},
		"/{realm}/{storage}/timers/{timer}": {"GET": a.getTimer, "PUT": a.putTimer, "PATCH": a.patchTimer, "DELETE": a.deleteTimer},
	}, config.Log)
	config.Agenda.Handle(service, kindTimer, a.expire)
	return a
}

// ServeHTTP answers a request below Root.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(OpenAPI)
	return nil
}

// maxAttempts bounds how often a change is tried anew because others changed the same timer.
const maxAttempts = 16

// Operation names what a request does, for measuring: "timer put".
func Operation(r *http.Request) string { return "timer " + rest.Method(r) }
