package hosttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Product is the package of the program vitrine.
const Product = "vitrine/cmd/vitrine"

// Build builds a program of this module into a file. It uses the flags of make build, so all tests
// share the compiled packages with the product. With other flags, Go would compile every package
// again, which takes minutes. The program does not know its commit, so that only a change of the code
// changes it.
func Build(ctx context.Context, path, pkg string) error { return static(ctx, path, pkg, "build") }

// Built is like Build, but the file lasts as long as the test. It returns the file's path.
func Built(t testing.TB, pkg string) string {
	t.Helper()
	return built(t, pkg, "build")
}

// BuiltTests is like Built, but builds a package's tests.
func BuiltTests(t testing.TB, pkg string) string {
	t.Helper()
	return built(t, pkg, "test", "-c")
}

// Self returns a script that runs this test binary with GORACE. Instances do not inherit GORACE,
// which also sets how long a process under the race detector sleeps before it ends.
func Self(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "self")
	text := fmt.Sprintf("#!/bin/sh\nexport GORACE=%q\nexec %q \"$@\"\n", os.Getenv("GORACE"), self)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func built(t testing.TB, pkg string, verb ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if err := static(t.Context(), path, pkg, verb...); err != nil {
		t.Fatal(err)
	}
	return path
}

func static(ctx context.Context, path, pkg string, verb ...string) error {
	build := exec.CommandContext(ctx, "go", append(verb, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, pkg)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	return nil
}
