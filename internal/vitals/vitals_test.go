package vitals_test

import (
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/access"
	"vitrine/internal/certtest"
	"vitrine/internal/vitals"
)

// TestRegister checks the metrics of a service with a certificate before and after a failed reload, and
// those of a service without one.
func TestRegister(t *testing.T) {
	dir := t.TempDir()
	pair := certtest.Loopback(t, dir, "own", nil)
	secure, err := access.LoadTLS(filepath.Join(dir, "own.pem"), filepath.Join(dir, "own.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	failed := false
	with, without := prometheus.NewRegistry(), prometheus.NewRegistry()
	s := vitals.Service{Prefix: "vitrine_x_", Version: "v1", ReloadFailed: func() bool { return failed }, Expiry: secure.Expiry}
	s.Register(with)
	s.Expiry = nil
	s.Register(without)
	const expiry = "vitrine_x_certificate_expiry_timestamp_seconds"
	got := gauges(t, with)
	if got["vitrine_x_build_info version=v1"] != 1 || got["process_start_time_seconds"] == 0 || got["vitrine_x_reload_failed"] != 0 ||
		got[expiry] != float64(pair.Certificate.NotAfter.Unix()) {
		t.Errorf("got %v", got)
	}
	failed = true
	if got := gauges(t, with)["vitrine_x_reload_failed"]; got != 1 {
		t.Errorf("after a failed reload: got %v, want 1", got)
	}
	if got, ok := gauges(t, without)[expiry]; ok {
		t.Errorf("without a certificate: got %v, want no metric", got)
	}
}

// gauges returns the gauges of a registry by their names and labels.
func gauges(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			all[name] = m.GetGauge().GetValue()
		}
	}
	return all
}
