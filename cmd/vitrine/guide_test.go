package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/spec"
)

// TestDockerExampleOfTheGuide checks the deployment of docs/files.md.
func TestDockerExampleOfTheGuide(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "files.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	d, err := spec.ParseDeployment(page, []byte(example), knownBackends())
	if err != nil {
		t.Fatal(err)
	}
	c := dockerConfig()
	if err := d.Servers.Parts["docker"].Decode(&c); err != nil || len(c.Mounts) != 1 {
		t.Errorf("got the mounts %+v, error %v, want one mount", c.Mounts, err)
	}
}
