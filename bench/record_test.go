package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of pages from the committed records")

// TestPages checks that every page shows the section that its committed record or simulation generates.
func TestPages(t *testing.T) {
	const root = ".."
	for _, p := range pages() {
		path := filepath.Join(root, p.path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.fill(root, string(text))
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if string(text) != want {
			t.Errorf("%s, %s: not what is generated now: run go test ./bench -run TestPages -update", p.path, p.name)
		}
	}
	other := page{"page.md", "bench/other", func(string) (string, error) { return notRun, nil }}
	if _, err := other.fill(root, "no marks"); err == nil {
		t.Error("fill accepts a page without marks")
	}
}
