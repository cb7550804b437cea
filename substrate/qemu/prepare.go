package qemu

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/image"
	"vitrine/image/debian"
	"vitrine/substrate/qemu/machine"
)

// guestFiles are the files that all machines of a substrate start from.
type guestFiles struct {
	base        debian.Base
	agent       string // raw image with the agent's program
	accelerator string
	why         string // why no better accelerator works
}

// prepare builds the files that machines start from, once.
func (s *Substrate) prepare(ctx context.Context) (*guestFiles, error) {
	s.preparing.Lock()
	defer s.preparing.Unlock()
	if s.prepared != nil {
		return s.prepared, nil
	}
	for _, program := range []string{machine.Program, "qemu-img", "mkfs.ext4"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, &vitrine.Unsupported{What: "virtual machines", Missing: "the program " + program, Do: "install qemu-system-x86, qemu-utils and e2fsprogs"}
		}
	}
	builder := debian.Builder{Cache: s.config.Cache, Logger: s.config.Logger, Environ: s.config.Environ}
	base, err := builder.Base(ctx, s.config.Debian)
	if err != nil {
		return nil, err
	}
	agent, err := s.agentDisk(ctx)
	if err != nil {
		return nil, fmt.Errorf("preparing the agent for virtual machines: %w", err)
	}
	kernel := func(context.Context) (string, error) { return base.Kernel, nil }
	accelerator, why, err := s.config.Prober.Choose(ctx, s.config.Accelerator, kernel)
	if err != nil {
		return nil, err
	}
	s.prepared = &guestFiles{base: base, agent: agent, accelerator: accelerator, why: why}
	return s.prepared, nil
}

// warn logs, once, that machines are emulated, and how QEMU is not confined.
func (s *Substrate) warn(files *guestFiles, c machine.Confinement) {
	s.warned.Do(func() {
		for _, missing := range c.Missing {
			s.config.Logger.Warn("virtual machines are less confined", "error", missing)
		}
		if vitrine.NotComparable(files.accelerator) == "" {
			return
		}
		s.config.Logger.Warn("virtual machines are emulated: their results cannot be compared with others", "accelerator", files.accelerator, "why", files.why)
	})
}

// Accelerator returns the accelerator of machines on this host. It may boot a machine to
// find out, so it builds the guest if that is missing.
func (s *Substrate) Accelerator(ctx context.Context) (string, error) {
	files, err := s.prepare(ctx)
	if err != nil {
		return "", err
	}
	return files.accelerator, nil
}

// confine returns how QEMU is confined, with or without devices of the host.
func (s *Substrate) confine(ctx context.Context, files *guestFiles, devices bool) (machine.Confinement, error) {
	return s.config.Prober.Confine(ctx, s.config.User, files.accelerator, devices)
}

// Unconfined returns what this host lacks to confine QEMU.
func (s *Substrate) Unconfined(ctx context.Context) ([]*vitrine.Unsupported, error) {
	files, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.confine(ctx, files, len(s.config.VFIO) > 0)
	return c.Missing, err
}

// agentKind is the kind of agent disks in the cache.
const agentKind = "guest-agent"

// agentDisk makes the disk with the agent's program, keyed by the program's digest.
func (s *Substrate) agentDisk(ctx context.Context) (string, error) {
	if len(s.config.Agent) == 0 {
		return "", errors.New("no agent program is configured")
	}
	program := s.config.Agent[0]
	if err := static(program); err != nil {
		return "", err
	}
	f, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest := sha256.New()
	size, err := io.Copy(digest, f)
	if err != nil {
		return "", err
	}
	dir, err := s.config.Cache.Once(ctx, agentKind, hex.EncodeToString(digest.Sum(nil)[:8]), func(ctx context.Context, dir string) error {
		tree := filepath.Join(dir, "tree")
		if err := os.Mkdir(tree, 0o755); err != nil {
			return err
		}
		if err := copyFile(program, filepath.Join(tree, agentName)); err != nil {
			return err
		}
		// Room for the file system's own tables: a sixteenth, plus 4 MiB.
		kib := strconv.FormatInt((size+size/16)>>10+4096, 10) + "k"
		err := run(ctx, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-d", tree, filepath.Join(dir, agentDisk), kib)
		return errors.Join(err, os.RemoveAll(tree))
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, agentDisk), nil
}

const (
	agentName = "agent"
	agentDisk = "agent.raw"
)

// static rejects a program that needs libraries, because a guest may not have them.
func static(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("reading the program %s: %w", program, err)
	}
	defer f.Close()
	if loader, err := image.Interpreter(f); err != nil || loader != "" {
		return &vitrine.BadInput{File: program, Found: "a program that needs libraries, which guests may not have", Want: "a static program: build with CGO_ENABLED=0, as make build does"}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// run runs a program of the host.
func run(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// overlay makes one machine's disk: an overlay for its writes, over a base image
// that it does not change. unchanged fails if the base was replaced later.
func (s *Substrate) overlay(ctx context.Context, base, path string) (disk machine.Disk, unchanged func() error, err error) {
	disk = machine.Disk{Path: path, Format: "qcow2", Backing: s.prepared.base.Disk, BackingFormat: "raw"}
	if base = cmp.Or(base, s.config.Image); base != "" {
		disk.Backing = s.config.resolve(base)
		if disk.BackingFormat, err = imageFormat(ctx, disk.Backing); err != nil {
			return disk, nil, err
		}
	}
	if unchanged, err = image.Unchanged(disk.Backing, disk.Backing); err != nil {
		return disk, nil, err
	}
	return disk, unchanged, run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", disk.BackingFormat, "-b", disk.Backing, path)
}

// imageFormat returns the format of an image. It rejects an image that refers to another file,
// because such an image could make QEMU read any file of the host.
func imageFormat(ctx context.Context, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", &vitrine.BadInput{File: path, Found: err.Error(), Want: "a disk image, raw or qcow2"}
	}
	out, err := exec.CommandContext(ctx, "qemu-img", "info", "--output=json", path).Output()
	var info struct {
		Format   string `json:"format"`
		Backing  string `json:"backing-filename"`
		Specific struct {
			Data struct {
				File string `json:"data-file"`
			} `json:"data"`
		} `json:"format-specific"`
	}
	if err == nil {
		err = json.Unmarshal(out, &info)
	}
	if err != nil {
		return "", fmt.Errorf("reading the disk image %s: %w", path, err)
	}
	if info.Format != "raw" && info.Format != "qcow2" {
		return "", &vitrine.BadInput{File: path, Found: "a disk image of the format " + info.Format, Want: "raw or qcow2"}
	}
	for field, other := range map[string]string{"backing-filename": info.Backing, "data-file": info.Specific.Data.File} {
		if other != "" {
			return "", &vitrine.BadInput{File: path, Found: fmt.Sprintf("%s is %q", field, other), Want: "an image of one file: copy it with qemu-img convert -O qcow2"}
		}
	}
	return info.Format, nil
}
