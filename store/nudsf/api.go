// Package nudsf is Nudsf_DataRepository (3GPP TS 29.598 clause 6.1) over an engine of
// the store: records with meta and blocks, search by tags, conditional requests, times to
// live, and subscriptions.
package nudsf

import (
	_ "embed"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// service names the API in paths, and its spaces in the engine.
const service = "nudsf-dr"

// Root is the path below which the API is.
const Root = "/" + service + "/v1"

// Kinds of records in a storage's space: what their names begin with.
const (
	kindRecord       = "r/"
	kindSubscription = "s/"
)

// OpenAPI describes the API: OpenAPI 3.0, YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config of an API.
type Config struct {
	Engine        store.Engine
	Agenda        *due.Agenda
	Sender        *callback.Sender
	Clock         func() time.Time
	Log           *slog.Logger  // nil: none
	Limits        wire.Limits   // zero: wire.DefaultLimits
	Storages      rest.Storages // nil: every realm and storage is there
	APIRoot       string        // "https://store.example:8443", before paths in URIs; empty: URIs are paths alone
	Subscriptions int           // of one storage, at most; 1000
}

// API is the handler of everything below Root.
type API struct {
	Config
	mux *http.ServeMux

	notified, dropped atomic.Uint64

	mu          sync.Mutex
	subscribers map[string]*subscribers // by space
}

// New makes the API. Its Agenda must run for records and subscriptions to expire, its
// Sender for notifications to be sent.
func New(config Config) *API {
	if config.Limits == (wire.Limits{}) {
		config.Limits = wire.DefaultLimits()
	}
	if config.Subscriptions == 0 {
		config.Subscriptions = 1000
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{Config: config, subscribers: map[string]*subscribers{}}
	a.mux = rest.Mux(Root, rest.Routes{
		"/openapi.yaml": {"GET": a.openAPI},
		"/{realm}/{storage}/records": {
			"GET": a.searchRecords, "DELETE": a.deleteRecords},
		"/{realm}/{storage}/records/{record}": {
			"GET": a.getRecord, "PUT": a.putRecord, "DELETE": a.deleteRecord},
		"/{realm}/{storage}/records/{record}/meta": {
			"GET": a.getMeta, "PATCH": a.patchMeta},
		"/{realm}/{storage}/records/{record}/blocks": {
			"GET": a.getBlocks},
		"/{realm}/{storage}/records/{record}/blocks/{block}": {
			"GET": a.getBlock, "PUT": a.putBlock, "DELETE": a.deleteBlock},
		"/{realm}/{storage}/subs-to-notify": {
			"GET": a.listSubscriptions},
		"/{realm}/{storage}/subs-to-notify/{subscription}": {
			"GET": a.getSubscription, "PUT": a.putSubscription, "PATCH": a.patchSubscription, "DELETE": a.deleteSubscription},
	}, config.Log)
	config.Agenda.Handle(service, kindRecord, a.expireRecord)
	config.Agenda.Handle(service, kindSubscription, a.expireSubscription)
	return a
}

// ServeHTTP answers a request below Root.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Counters of an API since it began.
type Counters struct {
	Notified uint64 `json:"notified"` // notifications of changes that were queued
	Dropped  uint64 `json:"dropped"`  // notifications of changes that found their receiver's queue full
}

// Counters gives the counters as they are now.
func (a *API) Counters() Counters {
	return Counters{Notified: a.notified.Load(), Dropped: a.dropped.Load()}
}

func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(OpenAPI)
	return nil
}

// uri gives the URI of a resource of a storage.
func (a *API) uri(space string, elements ...string) string {
	return a.APIRoot + rest.Path(space, elements...)
}

// maxBody bounds a body with a record: its parts and what is around them.
func (a *API) maxBody() int { return a.Limits.Bytes + a.Limits.Blocks*(a.Limits.ID+512) + 64<<10 }

// maxAttempts bounds how often a change is tried anew because others changed the same record.
const maxAttempts = 16

// Operation names what a request does, for measuring: "nudsf record put".
func Operation(r *http.Request) string {
	elements := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), Root+"/"), "/")
	what := "other"
	switch {
	case len(elements) >= 6 && elements[4] == "blocks":
		what = "block"
	case len(elements) >= 5:
		what = elements[4] // meta, blocks
		if what != "meta" && what != "blocks" {
			what = "other"
		}
	case len(elements) == 4 && elements[2] == "records":
		what = "record"
	case len(elements) == 3 && elements[2] == "records":
		what = "search"
	case len(elements) >= 3 && elements[2] == "subs-to-notify":
		what = "subscription"
	}
	return "nudsf " + what + " " + rest.Method(r)
}
