package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"vitrine/store"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/timer"
	"vitrine/store/service"
)

// TestClientsFindTheStore checks that a client made from an OpenAPI document asks, by default, the
// address that a store listens on by default.
func TestClientsFindTheStore(t *testing.T) {
	listen := (&app{}).storeRunCommand().Flags().Lookup("listen").DefValue
	want := `{default: "http://` + strings.Trim(listen, "[]") + `"}`
	for root, document := range map[string][]byte{nudsf.Root: nudsf.OpenAPI, timer.Root: timer.OpenAPI} {
		if !strings.Contains(string(document), want) {
			t.Errorf("the OpenAPI document of %s lacks the server %s", root, want)
		}
	}
}

// A brokenEngine keeps records on this host and takes no more writes, as after a disk error.
type brokenEngine struct{ store.Engine }

func (brokenEngine) Promises() store.Promises { return store.Promises{Engine: "embedded"} }

func (brokenEngine) Probe(context.Context) error { return errors.New("a disk error ended writing") }

// TestBrokenEngineIsDown checks that the health of a store says that its engine takes no more writes. Reads
// still have the fast path.
func TestBrokenEngineIsDown(t *testing.T) {
	w := httptest.NewRecorder()
	writeHealth(w, brokenEngine{}.Promises(), service.NewProber(brokenEngine{}).IsUp(t.Context()), nil)
	if body := w.Body.String(); !strings.Contains(body, `"engine_up":false`) {
		t.Errorf("got the health %s, want that the engine is down", body)
	}
	if quickOn(brokenEngine{}) == nil {
		t.Error("requests for records on this host are not quick")
	}
}
