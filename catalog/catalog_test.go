package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/fabric/impair"
	"vitrine/load/http"
	"vitrine/load/s1ap"
	"vitrine/load/simulated"
	"vitrine/load/sip"
	"vitrine/load/sipp"
	"vitrine/spec"
	"vitrine/substrate/docker"
	"vitrine/substrate/process"
)

// known returns the back ends that files of the catalog may use.
func known() spec.Known {
	return spec.Known{
		Substrates: map[string]any{"process": process.Config{}, "docker": docker.Config{}},
		Fabrics:    map[string]any{"auto": nil, "loopback": nil, "bridge": nil},
		Servers:    map[string]any{"impair": impair.Config{}},
		Generators: map[string]any{"http": http.Params{}, "s1ap": s1ap.Params{}, "simulated": simulated.Params{}, "sip": sip.Params{}, "sipp": sipp.Params{}},
	}
}

// TestFilesAreValid checks that every package has a deployment and a workload,
// that all its files are valid, and that it has enough subscribers for its
// highest rate.
func TestFilesAreValid(t *testing.T) {
	packages, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range packages {
		folder := of.Name()
		if !of.IsDir() || strings.HasPrefix(folder, "contain-ed-") { // vitrine flex runs those
			continue
		}
		t.Run(folder, func(t *testing.T) {
			deployments, err := filepath.Glob(filepath.Join(folder, "deployment*.yaml"))
			if err != nil || !slices.Contains(deployments, filepath.Join(folder, "deployment.yaml")) {
				t.Fatalf("no deployment.yaml among %q: %v", deployments, err)
			}
			for _, deployment := range deployments {
				if _, err := spec.LoadDeployment(deployment, known()); err != nil {
					t.Error(err)
				}
			}
			workloads, err := filepath.Glob(filepath.Join(folder, "workload*.yaml"))
			if err != nil || len(workloads) == 0 {
				t.Fatalf("no workload: %v", err)
			}
			for _, path := range workloads {
				checkWorkload(t, path)
			}
		})
	}
}

func checkWorkload(t *testing.T, path string) {
	t.Helper()
	w, err := spec.LoadWorkload(path, known())
	if err != nil {
		t.Error(err)
		return
	}
	given, err := w.Parameters.Strings()
	if err != nil {
		t.Fatal(err)
	}
	switch w.Generator {
	case "s1ap":
		if _, err := s1ap.Decode(given); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	case "sip":
		p, err := sip.Decode(given)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := p.Pool(w.Range.Max()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
