package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Digests identify the common content of images: two images may be compared if their digests are
// equal. Digests are SHA-256, in hexadecimal.
type Digests struct {
	Program       string `json:"program"`       // of the executable
	Configuration string `json:"configuration"` // of the command, its environment, and the files of the configuration
	Tree          string `json:"tree"`          // of the whole Tree that the image was built from, with libraries and other files
}

// A Content is the content of an image, read from the image itself.
type Content struct {
	Command     []string
	Environment []string // KEY=value
	// Files calls yield for every regular file, with its absolute path, until
	// yield returns an error.
	Files func(yield func(name string, content io.Reader) error) error
}

// Digests reads the whole image. The configuration files are those at or below the paths. The
// result has no Tree, because an image may hold more than its tree.
func (c Content) Digests(configuration []string) (Digests, error) {
	var d Digests
	files := make(map[string]string)
	err := c.Files(func(name string, content io.Reader) error {
		program := len(c.Command) > 0 && name == c.Command[0]
		if !program && !slices.ContainsFunc(configuration, func(at string) bool { return name == at || strings.HasPrefix(name, at+"/") }) {
			return nil
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, content); err != nil {
			return err
		}
		if program {
			d.Program = hex.EncodeToString(sum.Sum(nil))
		} else {
			files[name] = hex.EncodeToString(sum.Sum(nil))
		}
		return nil
	})
	if err != nil {
		return Digests{}, fmt.Errorf("reading an image: %w", err)
	}
	environment := slices.Sorted(slices.Values(c.Environment))
	b, err := json.Marshal([]any{c.Command, environment, files})
	if err != nil {
		return Digests{}, err
	}
	d.Configuration = fmt.Sprintf("%x", sha256.Sum256(b))
	return d, nil
}

// Digest returns the digest of the tree's content and command.
func (t *Tree) Digest() (string, error) {
	all := sha256.New()
	fmt.Fprintf(all, "%q %q %q\n", t.Command, t.Environment, t.Configuration)
	for _, e := range t.Entries() {
		fmt.Fprintf(all, "%q %v %q %d\n", e.Path, e.Mode, e.Link, e.Size)
		if !e.Mode.IsRegular() {
			continue
		}
		if err := e.CopyTo(all); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}
