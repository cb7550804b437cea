package result

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestAppenderRemembersAnIncompleteLine checks that nothing is appended any more if a line may be
// incomplete and could not be cut off.
func TestAppenderRemembersAnIncompleteLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, []byte("whole\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(path) // it can be neither written nor truncated
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	writable, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writable.Close()
	a := &appender{file: readOnly, size: int64(len("whole\n"))}
	first := a.append([]byte("lost\n"))
	a.file = writable // later writes would succeed
	if err := a.append([]byte("next\n")); err == nil || !errors.Is(first, err) {
		t.Errorf("got %v after %v", err, first)
	}
	if text, err := os.ReadFile(path); string(text) != "whole\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
