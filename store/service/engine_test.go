package service

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/store"
)

type measured struct{ err error }

func (m measured) Gauges(context.Context) (store.Gauges, error) {
	return store.Gauges{Records: 1, Bytes: 2, Waiting: 3}, m.err
}

// TestEngineAway checks that metrics say so if the engine does not answer, and that this is no
// error.
func TestEngineAway(t *testing.T) {
	if n := testutil.CollectAndCount(NewEngineCollector(measured{})); n != 5 {
		t.Errorf("got %d metrics, want 5", n)
	}
	want := "# HELP vitrine_store_engine_up 1 while the engine answers; without it there are no figures of it.\n" +
		"# TYPE vitrine_store_engine_up gauge\nvitrine_store_engine_up 0\n"
	if err := testutil.CollectAndCompare(NewEngineCollector(measured{errors.New("away")}), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
