package qemu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// TestImageOfOneFile checks that an image is refused if it would make QEMU read other files of the
// host. These files need not exist.
func TestImageOfOneFile(t *testing.T) {
	const qemuImg = "qemu-img"
	if _, err := exec.LookPath(qemuImg); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	create := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		all := append([]string{qemuImg, "create", "-q", "-f", "qcow2"}, args...)
		if err := run(t.Context(), append(all, path, "1M")...); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if format, err := imageFormat(t.Context(), create("whole")); format != "qcow2" || err != nil {
		t.Errorf("image of one file: got format %q, error %v", format, err)
	}
	for field, path := range map[string]string{
		"backing-filename": create("overlay", "-u", "-F", "raw", "-b", "/etc/hostname"),
		"data-file":        create("split", "-o", "data_file="+filepath.Join(dir, "data")),
	} {
		_, err := imageFormat(t.Context(), path)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), field) {
			t.Errorf("image with %s: got error %v", field, err)
		}
	}
}

// TestReplacedImageIsNotBooted checks that a machine does not boot its disk over another image than
// the one that the disk was made for.
func TestReplacedImageIsNotBooted(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	if err := os.WriteFile(base, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	in := &Instance{substrate: &Substrate{prepared: new(guestFiles)}}
	var err error
	if in.disk, in.unchanged, err = in.substrate.overlay(t.Context(), base, filepath.Join(dir, overlayFile)); err != nil {
		t.Fatal(err)
	}
	if err := in.unchanged(); err != nil {
		t.Errorf("the image that the disk was made for: got error %v", err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(base, later, later); err != nil {
		t.Fatal(err)
	}
	if _, err := in.boot(t.Context()); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), base+": built again") {
		t.Errorf("a replaced image: got error %v, want bad input", err)
	}
}
