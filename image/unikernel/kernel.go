package unikernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/image"
)

//go:embed guest/kernel.config
var kernelConfig []byte

//go:embed guest/init.c
var initSource []byte

// Sources matches the kernel sources of the packages linux-source-*: .tar.xz of Debian, .tar.bz2 of Ubuntu.
const Sources = "/usr/src/linux-source-*.tar.*"

// A Base is the part of every image that is not the application.
type Base struct {
	Kernel string // file, a bzImage
	Init   string // file, a static executable
}

// A Builder makes the base, once for all users of the cache.
type Builder struct {
	Cache  image.Cache
	Source string // the kernel's source, a compressed tar; empty: the newest of Sources
	Logger *slog.Logger
}

// Base finds the kernel and the first program in the cache, or builds them. Building the kernel
// takes minutes. If the host lacks something for the build, the error is a *vitrine.Unsupported.
func (b Builder) Base(ctx context.Context) (Base, error) {
	kernel, err := b.kernel(ctx)
	if err != nil {
		return Base{}, fmt.Errorf("making the kernel of unikernel images: %w", err)
	}
	first, err := b.first(ctx)
	if err != nil {
		return Base{}, fmt.Errorf("making the first program of unikernel images: %w", err)
	}
	return Base{Kernel: kernel, Init: first}, nil
}

// Cached returns the base if the cache has it. Otherwise the error is os.ErrNotExist, or the
// reason why this host cannot build the base.
func (b Builder) Cached() (Base, error) {
	_, key, err := b.source()
	if err != nil {
		return Base{}, err
	}
	base := Base{
		Kernel: filepath.Join(b.Cache.Dir, kernelKind, key, "bzImage"),
		Init:   filepath.Join(b.Cache.Dir, kernelKind, firstKey(), "init"),
	}
	for _, file := range []string{base.Kernel, base.Init} {
		if _, err := os.Stat(file); err != nil {
			return Base{}, err
		}
	}
	return base, nil
}

// AnyKernel returns a kernel that the cache has, whatever its source and options; empty: the cache
// has none.
func (b Builder) AnyKernel() string {
	found, _ := filepath.Glob(filepath.Join(b.Cache.Dir, kernelKind, "[^.]*", "bzImage"))
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// Possible returns an error that names what this host lacks to build the base.
func (b Builder) Possible() error {
	if _, _, err := b.source(); err != nil {
		return err
	}
	return requireTools(buildTools()...)
}

func buildTools() []string {
	return []string{"make", "gcc", "ld", "flex", "bison", "bc", "tar", "xz"}
}

// source returns the archive of the kernel's source, and the kernel's key in the cache.
func (b Builder) source() (path, key string, err error) {
	if err := image.NeedAMD64(runtime.GOARCH, "building a kernel"); err != nil {
		return "", "", err
	}
	path = b.Source
	if path == "" {
		found, err := filepath.Glob(Sources)
		if err != nil || len(found) == 0 {
			return "", "", &vitrine.Unsupported{What: "building a kernel", Missing: "its source, " + Sources, Do: "install linux-source"}
		}
		path = slices.MaxFunc(found, compareVersions)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", "", &vitrine.BadInput{File: path, Found: err.Error(), Want: "the source of Linux, a compressed tar"}
	}
	digest := sha256.New()
	fmt.Fprintln(digest, info.Size(), info.ModTime().UTC())
	digest.Write(kernelConfig)
	return path, fmt.Sprintf("%s-%x", sourceName(path), digest.Sum(nil)[:6]), nil
}

// sourceName returns the name of a source without .tar and what follows.
func sourceName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".tar")
	return name
}

// compareVersions sorts linux-source-5.10 before linux-source-6.1, and linux-source-6.1 before
// linux-source-6.12.
func compareVersions(a, b string) int { return slices.Compare(versionOf(a), versionOf(b)) }

var numbers = regexp.MustCompile(`[0-9]+`)

// versionOf returns the numbers in the name of a source.
func versionOf(path string) []int {
	var all []int
	for _, text := range numbers.FindAllString(sourceName(path), -1) {
		n, _ := strconv.Atoi(text) // cannot fail: only digits
		all = append(all, n)
	}
	return all
}

const kernelKind = "kernels"

func (b Builder) kernel(ctx context.Context) (string, error) {
	source, key, err := b.source()
	if err != nil {
		return "", err
	}
	dir, err := b.Cache.Once(ctx, kernelKind, key, func(ctx context.Context, dir string) error {
		if err := requireTools(buildTools()...); err != nil {
			return err
		}
		logger := b.Logger
		if logger == nil {
			logger = slog.New(slog.DiscardHandler)
		}
		logger.Info("building the kernel of unikernel images: minutes, once", "source", source)
		return buildKernel(ctx, logger, source, dir)
	})
	return filepath.Join(dir, "bzImage"), err
}

// requireTools returns an error that lists the missing programs.
func requireTools(names ...string) error {
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return &vitrine.Unsupported{
			What: "building a kernel", Missing: "the programs " + strings.Join(missing, ", "),
			Do: "install build-essential, flex, bison, bc, xz-utils and libelf-dev",
		}
	}
	return nil
}

// excludePatterns returns patterns of source files that no build for this architecture reads.
// Kconfig files and makefiles stay.
func excludePatterns() []string {
	list := []string{"*/Documentation/*/*", "*/tools/testing/*"}
	for _, dir := range []string{
		"arch/a*", "arch/[b-w]*", "drivers/gpu", "drivers/media", "drivers/staging", "drivers/infiniband", "drivers/scsi",
		"drivers/usb", "drivers/iio", "drivers/net/ethernet", "drivers/net/wireless", "sound",
	} {
		list = append(list, "*/"+dir+"/*.[chS]", "*/"+dir+"/*.dts*")
	}
	return list
}

// buildKernel puts bzImage and config into dir.
func buildKernel(ctx context.Context, logger *slog.Logger, source, dir string) error {
	tree := filepath.Join(dir, "source")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	unpack := []string{"tar", "-xf", source, "-C", tree, "--strip-components=1"}
	for _, pattern := range excludePatterns() {
		unpack = append(unpack, "--exclude="+pattern)
	}
	if err := run(ctx, unpack...); err != nil {
		return err
	}
	if err := run(ctx, "make", "-C", tree, "tinyconfig"); err != nil {
		return err
	}
	config := filepath.Join(tree, ".config")
	if err := appendTo(config, kernelConfig); err != nil {
		return err
	}
	if err := run(ctx, "make", "-C", tree, "olddefconfig"); err != nil {
		return err
	}
	if err := checkOptions(config); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	if err := compile(ctx, logger, tree); err != nil {
		return err
	}
	return errors.Join(
		os.Rename(filepath.Join(tree, "arch/x86/boot/bzImage"), filepath.Join(dir, "bzImage")),
		os.Rename(config, filepath.Join(dir, "config")),
		os.RemoveAll(tree))
}

// checkOptions returns an error that lists the options that the kernel's configuration did not
// accept. Another version may name them differently.
func checkOptions(config string) error {
	got, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var missing []string
	for line := range strings.Lines(string(kernelConfig)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "CONFIG_") && !bytes.Contains(got, []byte("\n"+line+"\n")) {
			missing = append(missing, line)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this kernel does not accept the options %s; remove it and install an older one, such as linux-source-6.1", strings.Join(missing, ", "))
	}
	return nil
}

func appendTo(path string, what []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(what)
	return errors.Join(err, f.Close())
}

func firstKey() string { return fmt.Sprintf("init-%x", sha256.Sum256(initSource))[:24] }

// first makes the first program from its source.
func (b Builder) first(ctx context.Context) (string, error) {
	dir, err := b.Cache.Once(ctx, kernelKind, firstKey(), func(ctx context.Context, dir string) error {
		if err := requireTools("gcc"); err != nil {
			return err
		}
		source := filepath.Join(dir, "init.c")
		if err := os.WriteFile(source, initSource, 0o600); err != nil {
			return err
		}
		return run(ctx, "gcc", "-static", "-Os", "-s", "-ffunction-sections", "-Wl,--gc-sections", "-o", filepath.Join(dir, "init"), source)
	})
	return filepath.Join(dir, "init"), err
}
