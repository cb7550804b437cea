package hosttest

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Golden checks that a golden file contains exactly got. With update, it writes the file first.
func Golden(t testing.TB, update bool, path string, got []byte) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Errorf("%s:%d: got\n%s\nwant\n%s\n(-update writes the file; then read the diff)", path, i+1, g[i], w[i])
			return
		}
	}
	t.Errorf("%s: got %d lines, want %d (-update writes the file; then read the diff)", path, len(g), len(w))
}
