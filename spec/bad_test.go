package spec

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
)

// TestBadInput checks that every file in testdata/bad is refused with exactly
// the errors in the golden file beside it, each with its position.
func TestBadInput(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 70 {
		t.Fatalf("only %d files (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			var err error
			if strings.HasPrefix(filepath.Base(file), "workload") {
				_, err = LoadWorkload(file, known())
			} else {
				_, err = LoadDeployment(file, known())
			}
			if err == nil {
				t.Fatal("accepted")
			}
			onlyBadInput(t, err)
			got := strings.ReplaceAll(err.Error(), "testdata/bad/", "") + "\n"
			hosttest.Golden(t, *update, strings.TrimSuffix(file, ".yaml")+".golden", []byte(got))
		})
	}
}

// onlyBadInput fails the test for any error that is not a BadInput, and for
// positions that are out of order.
func onlyBadInput(t *testing.T, err error) {
	t.Helper()
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	line := 0
	for _, e := range all {
		var bad *vitrine.BadInput
		if !errors.As(e, &bad) {
			t.Errorf("not a BadInput: %v", e)
			continue
		}
		if bad.Line < line {
			t.Errorf("out of order: %v", err)
		}
		line = bad.Line
		if bad.Found == "" {
			t.Errorf("says nothing of what was found: %#v", bad)
		}
	}
}
