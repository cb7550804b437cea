package substrate

import (
	"fmt"
	"os"
	"strings"
)

// OpenOutput opens a file to append a command's output to.
func OpenOutput(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a file for output: %w", err)
	}
	return f, nil
}

// LastOutput returns the end of an output file for an error's text, at most that many
// bytes. If the file cannot be read, LastOutput returns the reason instead.
func LastOutput(path string, most int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}
