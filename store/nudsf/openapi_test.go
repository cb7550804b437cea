package nudsf_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"vitrine/store/nudsf"
	"vitrine/store/timer"
)

var update = flag.Bool("update", false, "write docs/openapi anew")

// TestPublished holds the published documents against those that are served.
func TestPublished(t *testing.T) {
	for file, served := range map[string][]byte{"nudsf-dr.yaml": nudsf.OpenAPI, "nudsf-timer.yaml": timer.OpenAPI} {
		path := "../../docs/openapi/" + file
		if *update {
			if err := os.WriteFile(path, served, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		published, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(published, served) {
			t.Errorf("%s is not what is served: %v; write it with go test ./store/nudsf -run TestPublished -update", path, err)
		}
	}
}
