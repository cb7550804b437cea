package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of pages from the committed records")

// TestPages checks that every page shows the section that its committed record generates.
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
			t.Errorf("%s does not match the committed record: run go test ./bench -run TestPages -update", p.path)
		}
		if _, err := p.fill(root, "no marks"); err == nil {
			t.Errorf("%s: fill accepts a page without marks", p.path)
		}
	}
}
