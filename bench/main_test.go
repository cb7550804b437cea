package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"vitrine"
)

// TestAFailedBenchKeepsItsFolder checks that the folder of a bench stays, and is named, only if the bench
// fails.
func TestAFailedBenchKeepsItsFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for name, c := range map[string]struct {
		err         error
		interrupted bool
		kept        bool
	}{
		"succeeds":         {},
		"fails":            {err: errors.New("broken"), kept: true},
		"is not supported": {err: &vitrine.Unsupported{What: "a bench", Missing: "a program"}},
		"is interrupted":   {err: context.Canceled, interrupted: true},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.interrupted {
			cancel()
		}
		var folder string
		_, err := inFolder(func(_ context.Context, dir string, _ io.Writer) ([]Row, error) {
			folder = dir
			return nil, c.err
		})(ctx, io.Discard)
		cancel()
		_, missing := os.Stat(folder)
		if kept := missing == nil; kept != c.kept || !errors.Is(err, c.err) || kept && !strings.Contains(err.Error(), folder) {
			t.Errorf("a bench that %s: kept its folder: %t, %v", name, kept, err)
		}
	}
}
