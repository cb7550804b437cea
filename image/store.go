package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vitrine"
)

// A Packer makes a substrate's images.
type Packer interface {
	// Key changes when content of the images changes that is not the application's, such as a
	// kernel.
	Key(ctx context.Context) (string, error)
	// Pack writes an image into dir, which is empty, and returns its file.
	Pack(ctx context.Context, a *Application, t *Tree, dir string) (file string, err error)
	// Content reads the content of an image.
	Content(file string) (Content, error)
}

// An Image is a built image.
type Image struct {
	Name      string         `json:"name"`      // the application's
	Substrate string         `json:"substrate"` //
	File      string         `json:"file"`      // absolute, in the cache
	Size      int64          `json:"size"`      // bytes on disk, without holes
	Files     int64          `json:"files"`     // total size of the application's files, in bytes
	Ports     map[string]int `json:"ports,omitempty"`
	Digests
}

// A Store keeps the built images, by application and substrate.
type Store struct {
	Cache   Cache
	Packers map[string]Packer // by substrate
}

// A built is the record that the store keeps with an image.
type built struct {
	File          string         `json:"file"` // its name in the folder
	Tree          string         `json:"tree"` // the tree's Digest
	Key           string         `json:"key"`  // the packer's key
	Files         int64          `json:"files"`
	Configuration []string       `json:"configuration"`
	Ports         map[string]int `json:"ports,omitempty"`
}

const (
	imagesKind = "images-" // followed by the substrate
	builtName  = "built.json"
)

// Build builds the application's image for a substrate and then replaces an older one, which stays if
// the build fails. If nothing has changed since the last build, Build returns the older image.
func (s Store) Build(ctx context.Context, a *Application, substrate string) (Image, error) {
	packer := s.Packers[substrate]
	if packer == nil {
		return Image{}, &vitrine.BadInput{File: "substrate", Found: fmt.Sprintf("%q", substrate), Want: "want one of " + strings.Join(slices.Sorted(maps.Keys(s.Packers)), ", ")}
	}
	tree, err := a.Tree()
	if err != nil {
		return Image{}, err
	}
	b := built{Files: tree.Size(), Configuration: tree.Configuration, Ports: a.Ports}
	if b.Key, err = packer.Key(ctx); err != nil {
		return Image{}, err
	}
	if b.Tree, err = tree.Digest(); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", a.Name, err)
	}
	var i Image
	same := func() bool {
		old, err := s.read(a.Name, substrate)
		if err != nil || old.Tree != b.Tree || old.Key != b.Key || !maps.Equal(old.Ports, b.Ports) {
			return false
		}
		i, err = s.Find(a.Name, substrate)
		return err == nil // a damaged image is built again
	}
	folder, err := s.Cache.Replace(ctx, imagesKind+substrate, a.Name, same, func(ctx context.Context, dir string) (err error) {
		i, err = s.pack(ctx, a, tree, b, substrate, dir)
		return err
	})
	if err != nil {
		return Image{}, fmt.Errorf("building image %s for %s: %w", a.Name, substrate, err)
	}
	i.File = filepath.Join(folder, filepath.Base(i.File))
	return i, nil
}

// pack makes an image in the folder.
func (s Store) pack(ctx context.Context, a *Application, tree *Tree, b built, substrate, dir string) (Image, error) {
	file, err := s.Packers[substrate].Pack(ctx, a, tree, dir)
	if err != nil {
		return Image{}, err
	}
	b.File = filepath.Base(file)
	text, err := json.Marshal(b)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, builtName), text, 0o644)
	}
	if err != nil {
		return Image{}, err
	}
	return s.image(a.Name, substrate, dir, b)
}

func (s Store) folder(name, substrate string) string {
	return filepath.Join(s.Cache.Dir, imagesKind+substrate, name)
}

func (s Store) read(name, substrate string) (built, error) {
	var b built
	text, err := os.ReadFile(filepath.Join(s.folder(name, substrate), builtName))
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	return b, err
}

// Find returns the image of an application for a substrate. It computes the digests of program and
// configuration from the image's content, and the store keeps the digest of the tree. If there is no
// such image, the error is a *vitrine.BadInput.
func (s Store) Find(name, substrate string) (Image, error) {
	if !namePattern.MatchString(name) {
		return Image{}, &vitrine.BadInput{File: "image " + name, Found: "not a valid name", Want: "lower-case letters, digits and . _ -"}
	}
	b, err := s.read(name, substrate)
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, &vitrine.BadInput{File: "image " + name, Found: "not built for " + substrate, Want: "build it with vitrine image build, or see vitrine image list"}
	}
	var i Image
	if err == nil {
		i, err = s.image(name, substrate, s.folder(name, substrate), b)
	}
	if err != nil {
		return Image{}, fmt.Errorf("image %s for %s: %w; vitrine image build makes it again", name, substrate, err)
	}
	return i, nil
}

// image returns the image in the folder.
func (s Store) image(name, substrate, folder string, b built) (Image, error) {
	i := Image{Name: name, Substrate: substrate, File: filepath.Join(folder, b.File), Files: b.Files, Ports: b.Ports}
	var err error
	if i.Size, err = onDisk(i.File); err != nil {
		return Image{}, err
	}
	content, err := s.Packers[substrate].Content(i.File)
	if err == nil {
		i.Digests, err = content.Digests(b.Configuration)
	}
	if err != nil {
		return Image{}, err
	}
	i.Tree = b.Tree
	return i, nil
}

// Of returns the images of one application, by substrate. If there is none, the error
// is a *vitrine.BadInput.
func (s Store) Of(name string) ([]Image, error) {
	var list []Image
	var none error
	for _, substrate := range slices.Sorted(maps.Keys(s.Packers)) {
		i, err := s.Find(name, substrate)
		if err != nil && !vitrine.IsBadInput(err) {
			return nil, err
		}
		if err != nil {
			none = err
			continue
		}
		list = append(list, i)
	}
	if len(list) == 0 {
		return nil, none
	}
	return list, nil
}

// List returns all images, by name and substrate.
func (s Store) List() ([]Image, error) {
	var list []Image
	for _, substrate := range slices.Sorted(maps.Keys(s.Packers)) {
		entries, err := os.ReadDir(filepath.Join(s.Cache.Dir, imagesKind+substrate))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing images: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			i, err := s.Find(e.Name(), substrate)
			if err != nil {
				return nil, err
			}
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b Image) int {
		return strings.Compare(a.Name+" "+a.Substrate, b.Name+" "+b.Substrate)
	})
	return list, nil
}

// Remove removes an image, which may be damaged. If there is no such image, the error is a
// *vitrine.BadInput.
func (s Store) Remove(ctx context.Context, name, substrate string) error {
	if _, err := os.Stat(s.folder(name, substrate)); err != nil || !namePattern.MatchString(name) {
		return &vitrine.BadInput{File: "image " + name, Found: "not built for " + substrate, Want: "see vitrine image list"}
	}
	return s.Cache.Drop(ctx, imagesKind+substrate, name)
}

// Unchanged returns a function that fails if the image's file has been replaced since the call of
// Unchanged.
func Unchanged(name, file string) (check func() error, err error) {
	first, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	return func() error {
		now, err := os.Stat(file)
		if err == nil && !now.ModTime().Equal(first.ModTime()) {
			err = Rebuilt(name)
		}
		return err
	}, nil
}

// Rebuilt is the error for an image that is not the one that the run began with.
func Rebuilt(name string) error {
	return &vitrine.BadInput{File: "image " + name, Found: "built again during the run", Want: "begin another run, or build the image again as it was and continue with --resume"}
}
