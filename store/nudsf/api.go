package nudsf

import (
	_ "embed"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"vitrine/store/nudsf/rest"
)

// service names the API in paths and in the engine's spaces.
const service = "nudsf-dr"

// Root is the path of the API.
const Root = "/" + service + "/v1"

// Prefixes of the names of records in a storage's space.
const (
	kindRecord       = "r/"
	kindSubscription = "s/"
)

// OpenAPI describes the API: OpenAPI 3.0, YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// API is the handler of everything below Root. It serves Nudsf_DataRepository (clause 6.1): records
// with meta and blocks, search by tags, conditional requests, times to live, and subscriptions.
type API struct {
	rest.Config
	maxSubscriptions int // per storage
	mux              *http.ServeMux

	notified, dropped atomic.Uint64 // notifications of changes: queued, or dropped because the receiver's queue was full

	mu          sync.Mutex
	subscribers map[string]*subscribers // by space
	cached      int                     // bytes of all subscribers

	reads chan struct{} // holds an element for each read of subscribers that runs
}

func newAPI(config rest.Config, maxSubscriptions int) *API {
	a := &API{Config: config, maxSubscriptions: maxSubscriptions, subscribers: map[string]*subscribers{}, reads: make(chan struct{}, maxReads)}
	a.mux = rest.Mux(Root, OpenAPI, rest.Routes{
		"/{realm}/{storage}/records": {
			"GET": a.searchRecords, "DELETE": a.deleteRecords},
		"/{realm}/{storage}/records/{recordId}": {
			"GET": a.getRecord, "PUT": a.putRecord, "DELETE": a.deleteRecord},
		"/{realm}/{storage}/records/{recordId}/meta": {
			"GET": a.getMeta, "PATCH": a.patchMeta},
		"/{realm}/{storage}/records/{recordId}/blocks": {
			"GET": a.getBlocks},
		"/{realm}/{storage}/records/{recordId}/blocks/{blockId}": {
			"GET": a.getBlock, "PUT": a.putBlock, "DELETE": a.deleteBlock},
		"/{realm}/{storage}/subs-to-notify": {
			"GET": a.listSubscriptions},
		"/{realm}/{storage}/subs-to-notify/{subscriptionId}": {
			"GET": a.getSubscription, "PUT": a.putSubscription, "PATCH": a.patchSubscription, "DELETE": a.deleteSubscription},
	}, config)
	config.Agenda.Handle(service, kindRecord, a.expireRecord)
	config.Agenda.Handle(service, kindSubscription, a.expireSubscription)
	return a
}

// ServeHTTP serves a request below Root.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// uri returns the URI of a resource of a storage.
func (a *API) uri(space string, elements ...string) string {
	return a.APIRoot + rest.Path(space, elements...)
}

// maxBody bounds the body of a record, in bytes: its parts and their framing.
func (a *API) maxBody() int { return a.Limits.Bytes + a.Limits.Blocks*(a.Limits.ID+512) + 64<<10 }

// Operation returns the name of a request's operation for metrics, for example "nudsf record put".
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
