// Package unikernel runs instances in virtual machines that hold one application
// and nothing else.
//
// An image is one that package image/unikernel built, from an application's
// description or, where a component names no image, from the program of its
// command; or it is any other that QEMU starts by itself (-kernel): a Linux
// bzImage, a multiboot kernel, one with a PVH entry.
//
// The machine runs in a place of package process: the instance's network
// namespace, and its quota, which holds for all of QEMU. Its memory is the
// instance's limit.
package unikernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"vitrine"
	"vitrine/image"
	packed "vitrine/image/unikernel"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu/machine"
)

// Name is what the substrate's images are kept under.
const Name = "unikernel"

// Config is the part servers.unikernel of a deployment.
type Config struct {
	// Accelerator is what machines run with: kvm, tcg, or auto for the better one
	// that a kernel boots with here. Results under tcg, which emulates, cannot be
	// compared with others.
	Accelerator string `yaml:"accelerator" json:"accelerator,omitempty" jsonschema:"enum=auto,enum=kvm,enum=tcg"`
	// Machine is QEMU's model: microvm, q35, or auto, which is microvm for images
	// built here and q35 for others, of which nobody knows what they can drive.
	Machine string `yaml:"machine" json:"machine,omitempty" jsonschema:"enum=auto,enum=microvm,enum=q35"`
	// Memory is what a machine has when its flavor does not say, in bytes; 0: 256 MiB.
	Memory int64 `yaml:"memory" json:"memory,omitempty"`
	// Append is put before an instance's arguments on the command line of an image
	// that was not built here.
	Append string `yaml:"append" json:"append,omitempty"`

	Run     *runstate.Run   `yaml:"-" json:"-"` // whose instances these are
	Logger  *slog.Logger    `yaml:"-" json:"-"` // nil: none
	Environ []string        `yaml:"-" json:"-"` // PATH and HOME of QEMU are taken from it
	Folder  string          `yaml:"-" json:"-"` // relative paths of images are below it: the deployment's
	Cache   image.Cache     `yaml:"-" json:"-"` // where kernels and images are kept
	Prober  *machine.Prober `yaml:"-" json:"-"` // one for the whole process
}

// Memory of machines, in bytes.
const (
	usualMemory    = 256 << 20
	leastMemory    = 48 << 20  // a kernel and a small program do not start in less
	overheadMemory = 512 << 20 // of QEMU itself, most of it for code that TCG has translated
)

const auto = "auto"

// A Substrate makes instances as machines of one application.
type Substrate struct {
	config Config
	places *process.Substrate

	instances substrate.Roster
}

var (
	_ substrate.Substrate = (*Substrate)(nil)
	_ vitrine.Cleaner     = (*Substrate)(nil)
	_ vitrine.Checker     = (*Substrate)(nil)
	_ substrate.Instance  = (*Instance)(nil)
	_ substrate.Process   = (*guest)(nil)
)

// New makes a substrate. Without network namespaces, which a machine's tap is in,
// the error is a *vitrine.Unsupported; whether there is QEMU shows at Create.
func New(config Config) (*Substrate, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Prober == nil {
		config.Prober = new(machine.Prober)
	}
	if config.Memory == 0 {
		config.Memory = usualMemory
	}
	for _, choice := range []struct {
		name, given string
		of          []string
	}{
		{"accelerator", config.Accelerator, machine.Accelerators()},
		{"machine", config.Machine, []string{auto, machine.MicroVM, machine.Q35}},
	} {
		if choice.given != "" && !slices.Contains(choice.of, choice.given) {
			return nil, &vitrine.BadInput{File: Name, Found: fmt.Sprintf("%s: %q", choice.name, choice.given), Want: strings.Join(choice.of, ", ")}
		}
	}
	places, err := process.New(process.Config{Network: process.NetworkNamespace, Run: config.Run, Logger: config.Logger, Environ: config.Environ})
	if err != nil {
		return nil, err
	}
	return &Substrate{config: config, places: places}, nil
}

// namePattern keeps names fit for files, namespaces and a machine's own name.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,60}$`)

// Create makes the instance's place on the host, and sees to it that its image
// is there, or what one is made from, which may be built first.
func (s *Substrate) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	in, err := s.create(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
	}
	return in, nil
}

func (s *Substrate) create(ctx context.Context, spec substrate.Spec) (*Instance, error) {
	if !namePattern.MatchString(spec.Name) {
		return nil, &vitrine.BadInput{File: Name, Found: fmt.Sprintf("instance %q", spec.Name), Want: "a name of letters, digits and hyphens"}
	}
	if spec.Memory == 0 {
		spec.Memory = s.config.Memory
	}
	if spec.Memory < leastMemory {
		return nil, &vitrine.BadInput{File: Name, Found: fmt.Sprintf("%d MiB of memory", spec.Memory>>20), Want: fmt.Sprintf("at least %d MiB for a machine", leastMemory>>20)}
	}
	var err error
	if spec.Dir, err = filepath.Abs(spec.Dir); err != nil {
		return nil, err
	}
	in := &Instance{substrate: s, spec: spec}
	if err := s.instances.Admit(spec.Name, in); err != nil {
		return nil, err
	}
	if err := in.make(ctx); err != nil {
		return nil, errors.Join(err, in.Remove(context.WithoutCancel(ctx)))
	}
	return in, nil
}

// accelerator is the one that was asked for, or the better one that works.
func (s *Substrate) accelerator(ctx context.Context, kernel string) (string, error) {
	found, why, err := s.config.Prober.Choose(ctx, s.config.Accelerator, kernel)
	if err != nil {
		return "", err
	}
	if vitrine.NotComparable(found) != "" {
		s.config.Logger.Debug("machines are emulated: their results cannot be compared with others", "accelerator", found, "why", why)
	}
	return found, nil
}

// OwnKernel is true: each instance is a machine.
func (s *Substrate) OwnKernel() bool { return true }

// Accelerator is what machines run with here. It builds the kernel if it is not
// there, for the answer comes from booting.
func (s *Substrate) Accelerator(ctx context.Context) (string, error) {
	base, err := packed.Builder{Cache: s.config.Cache, Logger: s.config.Logger}.Base(ctx)
	if err != nil {
		return "", err
	}
	return s.accelerator(ctx, base.Kernel)
}

// Close removes all instances.
func (s *Substrate) Close(ctx context.Context) error {
	return errors.Join(s.instances.Close(ctx), s.places.Close(ctx))
}

// recordKind is where a run records the folders of its machines.
const recordKind = "unikernel"

// Clean removes what dead runs left: their machines with all that holds them, and
// what these were started from.
func (s *Substrate) Clean(ctx context.Context) (removed []string, err error) {
	removed, err = s.places.Clean(ctx)
	recorded, failed := runstate.RemoveRecorded(s.config.Run.Root, recordKind)
	return append(removed, recorded...), errors.Join(err, failed)
}

// An origin is what an instance's machine is started from.
type origin struct {
	file string       // an image; empty: one is made of the command's program
	ours bool         // it was built here
	base *packed.Base // of the machine whose image is made of a program
}

// find finds what a component's image is: a file, the name of one that was
// built, or nothing.
func (s *Substrate) find(ctx context.Context, name string) (origin, error) {
	builder := packed.Builder{Cache: s.config.Cache, Logger: s.config.Logger}
	if name == "" {
		base, err := builder.Base(ctx)
		return origin{ours: true, base: &base}, err
	}
	file := name
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.config.Folder, file)
	}
	if _, err := os.Stat(file); err != nil {
		if strings.ContainsRune(name, '/') {
			return origin{}, &vitrine.BadInput{File: "image " + name, Found: err.Error(), Want: "a file that QEMU starts by -kernel, or the name of an image of vitrine image list"}
		}
		store := image.Store{Cache: s.config.Cache, Packers: map[string]image.Packer{Name: packed.Packer{Builder: builder}}}
		built, err := store.Find(name, Name)
		if err != nil {
			return origin{}, err
		}
		file = built.File
	}
	return origin{file: file, ours: packed.IsImage(file)}, nil
}
