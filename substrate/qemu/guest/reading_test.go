package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
)

// TestReadingWithoutMemory checks that the error names the value that the kernel does not give.
func TestReadingWithoutMemory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"stat": "cpu 1 2 3 4 5 6 7 8 9 10\n", "meminfo": "MemTotal: 1024 kB\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	proc, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeReading(proc); err == nil || strings.Contains(err.Error(), "%!") || !strings.Contains(err.Error(), "MemAvailable") {
		t.Errorf("kernel without MemAvailable: got error %v", err)
	}
}
