package qemu

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
