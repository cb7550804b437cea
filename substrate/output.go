package substrate

import (
	"fmt"
	"os"
)

// OpenOutput opens a file to append a command's output to.
func OpenOutput(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a file for output: %w", err)
	}
	return f, nil
}
