package debian

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
)

// archiveIn makes an archive without packages, whose Release file is not signed.
func archiveIn(t *testing.T) (mirror string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"Release":                      "Suite: bookworm\nCodename: bookworm\nComponents: main\nArchitectures: amd64\nSHA256:\n e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 main/binary-amd64/Packages\n",
		"main/binary-amd64/Packages":   "",
		"main/binary-amd64/.directory": "",
	} {
		file := filepath.Join(dir, "dists/bookworm", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}

// TestUnsignedArchiveIsRefused checks that debootstrap itself refuses the archive, and that the
// error has advice.
func TestUnsignedArchiveIsRefused(t *testing.T) {
	hosttest.Need(t, Possible())
	b := builder(t)
	b.Cache.Dir = t.TempDir()
	_, err := b.Base(t.Context(), Options{Mirror: archiveIn(t)})
	if vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	if !vitrine.IsBadInput(err) {
		t.Fatalf("an archive without a signature: %v", err)
	}
	for _, want := range []string{"signature", debianKeyring, "debian.keyring"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}

// TestKeyringIsRequired checks that a missing keyring is an error, because debootstrap would skip
// the check.
func TestKeyringIsRequired(t *testing.T) {
	hosttest.Need(t, Possible())
	b := builder(t)
	b.Cache.Dir = t.TempDir()
	missing := filepath.Join(t.TempDir(), "no-keyring.gpg")
	if _, err := b.Base(t.Context(), Options{Keyring: missing}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a missing keyring: %v", err)
	}
}

// TestDebootstrapMustCheckSignatures records the arguments of a debootstrap that fails.
func TestDebootstrapMustCheckSignatures(t *testing.T) {
	hosttest.Need(t, Possible())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "debootstrap"), []byte("#!/bin/sh\necho \"$@\"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	keyring := filepath.Join(dir, "mirror.gpg")
	if err := os.WriteFile(keyring, []byte("keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	b := builder(t)
	b.Logger = slog.New(slog.DiscardHandler)
	for file, o := range map[string]Options{debianKeyring: {}, keyring: {Keyring: keyring}} {
		_, o = o.resolve()
		err := b.debootstrap(t.Context(), o, filepath.Join(dir, "root"))
		if vitrine.IsUnsupported(err) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error(), "--force-check-gpg --keyring="+file+" ") {
			t.Errorf("with the keyring %s debootstrap runs with: %v", file, err)
		}
	}
}
