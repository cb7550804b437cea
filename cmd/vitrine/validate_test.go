package main

import (
	"path/filepath"
	"strings"
	"testing"

	"vitrine/spec"
)

// TestValidateCatalog checks that every file of the catalog is valid, as the kind that its name says.
func TestValidateCatalog(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "catalog", "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	kinds := map[string]string{
		"deployment": spec.KindDeployment, "aggregate": spec.KindDeployment, "workload": spec.KindWorkload,
		"flex": "flex file", "director": "director file",
	}
	for _, file := range files {
		name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "-") // workload-sip.yaml is a workload
		if kind, err := validate(file); err != nil || kind != kinds[name] {
			t.Errorf("%s is a %q, error %v, want a %s", file, kind, err, kinds[name])
		}
	}
}
