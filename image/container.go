package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A Container packs an application into a container image, from scratch. The result is an
// archive for `docker load` (Docker Image Specification v1.2). No engine is needed to make it.
type Container struct{}

var _ Packer = Container{}

// Reference returns the engine's name for the loaded image.
func Reference(application string) string { return "vitrine/" + application + ":latest" }

// ContainerID returns the ID of the image in an archive: the digest of its configuration.
func ContainerID(archive string) (string, error) {
	var id string
	err := inArchive(archive, func(name string, _ io.Reader) error {
		if digest, ok := strings.CutSuffix(name, ".json"); ok && name != "/manifest.json" {
			id = "sha256:" + digest[1:]
		}
		return nil
	})
	if err == nil && id == "" {
		err = fmt.Errorf("%s: not an image archive", archive)
	}
	return id, err
}

// A configuration is an image's configuration (Docker Image Specification v1.2).
type configuration struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Created      string `json:"created"`
	Config       struct {
		Env          []string            `json:"Env"`
		Cmd          []string            `json:"Cmd"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// A manifestEntry describes one image of an archive.
type manifestEntry struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

// LayerName is the file of a layer, in the folder of its image.
const LayerName = "layer.tar"

// Key is constant, because the image holds only the tree.
func (Container) Key(context.Context) (string, error) { return "1", nil }

// Pack writes the archive.
func (Container) Pack(_ context.Context, a *Application, t *Tree, dir string) (string, error) {
	layer, err := os.CreateTemp(dir, ".layer-")
	if err != nil {
		return "", err
	}
	defer layer.Close()
	if err := os.Remove(layer.Name()); err != nil {
		return "", err
	}
	digest := sha256.New()
	if err := t.WriteTar(io.MultiWriter(layer, digest)); err != nil {
		return "", err
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = layer.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", err
	}
	c := configuration{Architecture: runtime.GOARCH, OS: "linux", Created: time.Unix(0, 0).UTC().Format(time.RFC3339)}
	c.Config.Env, c.Config.Cmd = t.Environment, t.Command
	c.Config.ExposedPorts = make(map[string]struct{})
	for port := range maps.Values(a.Ports) {
		c.Config.ExposedPorts[fmt.Sprintf("%d/tcp", port)] = struct{}{}
	}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{fmt.Sprintf("sha256:%x", digest.Sum(nil))}
	file := filepath.Join(dir, "image.tar")
	return file, writeArchive(file, a.Name, c, layer, size)
}

func writeArchive(file, name string, c configuration, layer io.Reader, size int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	config, err := json.Marshal(c)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]manifestEntry{{Config: configName, RepoTags: []string{Reference(name)}, Layers: []string{LayerName}}})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	archive := tar.NewWriter(f)
	put := func(name string, size int64, content io.Reader) {
		if err == nil {
			err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)})
		}
		if err == nil {
			_, err = io.Copy(archive, content)
		}
	}
	put("manifest.json", int64(len(manifest)), bytes.NewReader(manifest))
	put(configName, int64(len(config)), bytes.NewReader(config))
	put(LayerName, size, layer)
	if err == nil {
		err = archive.Close()
	}
	return errors.Join(err, f.Close())
}

// Content reads the content of an archive.
func (Container) Content(file string) (Content, error) {
	var c configuration
	err := inArchive(file, func(name string, r io.Reader) error {
		if filepath.Ext(name) != ".json" || name == "/manifest.json" {
			return nil
		}
		return json.NewDecoder(r).Decode(&c)
	})
	return Content{
		Command: c.Config.Cmd, Environment: slices.Clone(c.Config.Env),
		Files: func(yield func(string, io.Reader) error) error {
			return inArchive(file, func(name string, r io.Reader) error {
				if name != "/"+LayerName {
					return nil
				}
				return readTar(r, yield)
			})
		},
	}, err
}

func inArchive(file string, yield func(name string, r io.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return readTar(f, yield)
}
