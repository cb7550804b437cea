// Package application runs instances from the images that package image built, on every
// substrate. A deployment names an application, and each substrate gets the image that was
// built for it. All instances run the same program with the same configuration, or Create
// fails.
//
// A container engine gets its archive, and machines get their disk or kernel. On the host
// itself, the application's files are unpacked and become the root folder of the program.
package application

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"vitrine"
	"vitrine/image"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// Config is one substrate and the store of its images.
type Config struct {
	Substrate substrate.Substrate
	Name      string // the substrate's name in the store: "process", "docker", "qemu", "unikernel"
	Store     image.Store
	Run       *runstate.Run // the run of the instances
	// Seen has the image.Digests of each application's first image, by application. A later image
	// with others is refused. The substrates of a run share Seen; nil: images may change.
	Seen *sync.Map

	// Load gives an image to the substrate and returns the substrate's name for it; nil:
	// the image's file is its name.
	Load func(ctx context.Context, i image.Image) (reference string, err error)
	// Started is set if Vitrine, not the substrate, must start the image's command.
	Started bool
	// Inside is the start of a command line that runs a command in an unpacked image: the
	// program, and the words before the arguments of the function Inside. Empty: images are
	// not unpacked.
	Inside []string
}

// A Substrate gives the instances of another substrate their images.
type Substrate struct{ config Config }

// New wraps a substrate; Close closes that substrate too.
func New(config Config) *Substrate { return &Substrate{config} }

// Close closes the wrapped substrate.
func (s *Substrate) Close(ctx context.Context) error { return s.config.Substrate.Close(ctx) }

// Accelerator returns the accelerator of the substrate's machines; empty: it has none.
func (s *Substrate) Accelerator(ctx context.Context) (string, error) {
	return substrate.AcceleratorOf(ctx, s.config.Substrate)
}

// Unconfined returns what this host lacks to isolate the substrate's instances from the
// host.
func (s *Substrate) Unconfined(ctx context.Context) ([]*vitrine.Unsupported, error) {
	return substrate.Unconfined(ctx, s.config.Substrate)
}

// BootsUnlimited reports whether the substrate's instances boot without their quota.
func (s *Substrate) BootsUnlimited() bool { return substrate.BootsUnlimited(s.config.Substrate) }

// StaysUp reports whether the substrate's instances boot only once.
func (s *Substrate) StaysUp() bool { return substrate.StaysUp(s.config.Substrate) }

// OwnKernel reports whether the substrate's instances have their own kernel.
func (s *Substrate) OwnKernel() bool { return substrate.OwnKernel(s.config.Substrate) }

// Create makes the instance with the image that was built for this substrate. The substrate
// itself handles a Spec.Image that names no application.
func (s *Substrate) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	built, err := s.find(spec.Image)
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
	}
	if built == nil {
		return s.config.Substrate.Create(ctx, spec)
	}
	content, err := s.config.Store.Packers[s.config.Name].Content(built.File)
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: image %s: %w", spec.Name, built.Name, err)
	}
	if len(s.config.Inside) > 0 {
		return s.unpacked(ctx, spec, *built, content)
	}
	spec.Image = built.File
	if s.config.Load != nil {
		if spec.Image, err = s.config.Load(ctx, *built); err != nil {
			return nil, fmt.Errorf("creating instance %s: image %s: %w", spec.Name, built.Name, err)
		}
	}
	in, err := s.config.Substrate.Create(ctx, spec)
	if err != nil || !s.config.Started {
		return in, err
	}
	return &instance{Instance: in, content: content}, nil
}

// find returns this substrate's image of an application; nil: there is no such application.
// The application's images for all substrates must have the same digests, and those of the first
// image that the run found.
func (s *Substrate) find(name string) (*image.Image, error) {
	if name == "" || strings.ContainsAny(name, "/:") {
		return nil, nil
	}
	var mine, other *image.Image
	for _, of := range slices.Sorted(maps.Keys(s.config.Store.Packers)) {
		i, err := s.config.Store.Find(name, of)
		switch {
		case vitrine.IsBadInput(err):
			continue // no image for that substrate
		case err != nil:
			return nil, err
		case of == s.config.Name:
			mine = &i
		default:
			other = &i
		}
		if mine != nil && other != nil && mine.Digests != other.Digests {
			return nil, &vitrine.BadInput{
				File: "image " + name, Found: fmt.Sprintf("the images for %s and %s differ in program, configuration, libraries or other files", mine.Substrate, other.Substrate),
				Want: "build them again from one description with vitrine image build",
			}
		}
	}
	if mine == nil && other != nil {
		return nil, &vitrine.BadInput{File: "image " + name, Found: "built for " + other.Substrate + " but not for " + s.config.Name, Want: "build it with vitrine image build --" + s.config.Name}
	}
	if mine != nil && s.config.Seen != nil {
		if first, _ := s.config.Seen.LoadOrStore(name, mine.Digests); first != mine.Digests {
			return nil, image.Rebuilt(name)
		}
	}
	return mine, nil
}

// rootDir is the folder in the instance's folder into which an image is unpacked.
const rootDir = "root"

// recordKind is the kind of record for unpacked images.
const recordKind = "image"

// unpacked makes an instance whose commands run in the files of the image.
func (s *Substrate) unpacked(ctx context.Context, spec substrate.Spec, built image.Image, content image.Content) (substrate.Instance, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, &vitrine.Unsupported{
			What: "running the image " + built.Name + " directly on the host", Missing: "the privilege to change the root folder (chroot)", Do: "run as root, or use the substrate docker, qemu or unikernel",
		})
	}
	var account *substrate.Account
	if spec.User != "" {
		var err error
		if account, err = substrate.FindAccount(spec.User); err != nil {
			return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
		}
	}
	dir, err := filepath.Abs(spec.Dir)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, rootDir)
	in := &instance{content: content, account: account, remove: func() error { return s.discard(spec.Name, root) }}
	in.inside = slices.Concat(s.config.Inside, []string{root, dir, account.String()})
	if in.unpack, err = unpacker(built, root); err == nil {
		err = s.config.Run.Record(recordKind, spec.Name, []byte(root))
	}
	if err == nil {
		err = in.unpack()
	}
	if err == nil {
		spec.Image, spec.User = "", "" // only root may enter the image, which then changes to the user
		in.Instance, err = s.config.Substrate.Create(ctx, spec)
	}
	if err != nil {
		return nil, fmt.Errorf("creating instance %s of image %s: %w", spec.Name, built.Name, errors.Join(err, in.remove()))
	}
	return in, nil
}

// unpacker returns a function that empties root and unpacks the image there. The function fails if the
// image was built again meanwhile.
func unpacker(built image.Image, root string) (unpack func() error, err error) {
	unchanged, err := image.Unchanged(built.Name, built.File)
	if err != nil {
		return nil, err
	}
	return func() error {
		err := unchanged()
		if err == nil {
			err = os.RemoveAll(root)
		}
		if err == nil {
			err = image.Unpack(built.File, root)
		}
		return err
	}, nil
}

func (s *Substrate) discard(name, root string) error {
	return errors.Join(os.RemoveAll(root), s.config.Run.Erase(recordKind, name))
}

// A Cleaner removes the images that dead runs unpacked.
type Cleaner struct{ Root string } // the folder of the runs

var _ vitrine.Cleaner = Cleaner{}

// Clean removes the images that dead runs unpacked. Their processes must have ended.
func (c Cleaner) Clean(context.Context) (removed []string, err error) {
	return runstate.RemoveRecorded(c.Root, recordKind)
}
