package machine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/substrate"
)

// TestQemuSandboxIsProbed checks that the QEMU of this host takes the strict sandbox.
func TestQemuSandboxIsProbed(t *testing.T) {
	var p Prober
	got, err := p.findSandbox(t.Context())
	hosttest.Need(t, err)
	if got != sandboxes()[0] {
		t.Errorf("got sandbox %q", got)
	}
}

// TestSandboxOfAnOldOrForeignQEMU runs scripts in place of QEMU. One takes only the sandbox of old
// versions, the other takes none.
func TestSandboxOfAnOldOrForeignQEMU(t *testing.T) {
	for name, test := range map[string]struct {
		script, want string
		missing      string
	}{
		"Old":            {script: `case "$*" in *spawn=deny*) echo "Invalid parameter 'spawn'" >&2; exit 1; esac`, want: "on"},
		"WithoutSeccomp": {script: `echo "There is no option group 'sandbox'" >&2; exit 1`, missing: "no option group"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, Program), []byte("#!/bin/sh\n"+test.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			var p Prober
			c, err := p.Confine(t.Context(), "", TCG, false)
			if err != nil || c.Sandbox != test.want {
				t.Fatalf("got sandbox %q, error %v, want %q", c.Sandbox, err, test.want)
			}
			if test.missing == "" && len(c.Missing) > 0 || test.missing != "" && (len(c.Missing) != 1 || !strings.Contains(c.Missing[0].Missing, test.missing)) {
				t.Errorf("got missing restrictions %v", c.Missing)
			}
			// The first answer is kept, so QEMU is not needed again.
			if err := os.Remove(filepath.Join(dir, Program)); err != nil {
				t.Fatal(err)
			}
			if again, err := p.Confine(t.Context(), "", TCG, false); err != nil || again.Sandbox != c.Sandbox || len(again.Missing) != len(c.Missing) {
				t.Errorf("second Confine: got %+v, error %v", again, err)
			}
		})
	}
}

// TestQEMUsUser checks that QEMU runs as nobody or as the named user. With devices of the host,
// QEMU must keep the user of this process.
func TestQEMUsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "changing the user", Missing: "root"})
	}
	var p Prober
	for _, test := range []struct {
		user    string
		devices bool
		uid     int // -1: no account, so QEMU keeps the user of this process
	}{{"", false, 65534}, {"54321:54322", false, 54321}, {"root", false, 0}, {"", true, -1}} {
		c, err := p.Confine(t.Context(), test.user, TCG, test.devices)
		if err != nil {
			t.Fatal(err)
		}
		if test.uid < 0 && (c.Account != nil || len(c.Missing) == 0) || test.uid >= 0 && (c.Account == nil || int(c.Account.UID) != test.uid) {
			t.Errorf("user %q, devices %v: got account %v, missing %v", test.user, test.devices, c.Account, c.Missing)
		}
	}
	if _, err := p.Confine(t.Context(), "no-such-user", TCG, false); !vitrine.IsBadInput(err) {
		t.Errorf("unknown user: got error %v, want bad input", err)
	}
}

// TestDeviceIsOpenToItsGroup checks that an account joins the group that may read and write a
// device, unless it is the group of root.
func TestDeviceIsOpenToItsGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&vitrine.Unsupported{What: "changing the group of a file", Missing: "root"})
	}
	device := filepath.Join(t.TempDir(), "kvm")
	for _, test := range []struct {
		mode   os.FileMode
		group  int
		want   bool
		groups int
	}{{0o666, 0, true, 0}, {0o660, 54322, true, 1}, {0o660, 0, false, 0}, {0o600, 54322, false, 0}, {0o640, 54322, false, 0}} {
		if err := errors.Join(os.WriteFile(device, nil, 0o600), os.Chmod(device, test.mode), os.Chown(device, 0, test.group)); err != nil {
			t.Fatal(err)
		}
		account := &substrate.Account{UID: 54321, GID: 54321}
		if got := mayOpen(account, device); got != test.want || len(account.Groups) != test.groups {
			t.Errorf("device of mode %v and group %d: got %v with groups %v", test.mode, test.group, got, account.Groups)
		}
	}
}

// TestPrivateKernelIsReadable checks that QEMU's user can read what readable returns. A file that
// only root may read must be copied, any other must not.
func TestPrivateKernelIsReadable(t *testing.T) {
	for mode, copied := range map[os.FileMode]bool{0o600: true, 0o644: false} {
		path := filepath.Join(t.TempDir(), "kernel")
		if err := os.WriteFile(path, []byte("the kernel"), mode); err != nil {
			t.Fatal(err)
		}
		f, err := readable(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || info.Mode().Perm()&0o004 == 0 {
			t.Errorf("mode %v: got mode %v, error %v", mode, info.Mode(), err)
		}
		original, err := os.Stat(path)
		if err != nil || os.SameFile(info, original) == copied {
			t.Errorf("mode %v: got copied %v, error %v", mode, !copied, err)
		}
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
		if err != nil || string(text) != "the kernel" {
			t.Errorf("mode %v: got text %q, error %v", mode, text, err)
		}
	}
}
