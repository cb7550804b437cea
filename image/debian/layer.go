package debian

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"vitrine/image"
)

// A Packer packs applications as disk images of virtual machines: the minimal system with the
// application's files on top.
type Packer struct{ Builder Builder }

var _ image.Packer = Packer{}

// loaderCache is the loader's list of the system's own libraries. The images of other substrates have
// none. With the list, the loader could take another library than in those.
const loaderCache = "etc/ld.so.cache"

// Key is the key of the system, and what Pack leaves out of the system.
func (Packer) Key(context.Context) (string, error) {
	return Options{Release: DefaultRelease}.key() + " without " + loaderCache, nil
}

// Pack writes the disk and, beside it, the layer of the application's files.
func (p Packer) Pack(ctx context.Context, a *image.Application, t *image.Tree, dir string) (string, error) {
	b := p.Builder
	if b.Logger == nil {
		b.Logger = slog.New(slog.DiscardHandler)
	}
	base, err := b.Base(ctx, Options{})
	if err != nil {
		return "", err
	}
	layer, err := image.Layer{}.Pack(ctx, a, t.Bare(), dir)
	if err != nil {
		return "", err
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return "", err
	}
	for _, archive := range []string{filepath.Join(filepath.Dir(base.Disk), treeFile), layer} {
		// Keep the system's own folders. Some of them are links, such as /lib.
		err := b.run(ctx, "tar", "--extract", "--numeric-owner", "--xattrs", "--keep-directory-symlink", "--no-overwrite-dir",
			"--file", archive, "--directory", root)
		if err == nil && archive != layer {
			err = os.Remove(filepath.Join(root, loaderCache))
		}
		if err != nil {
			return "", fmt.Errorf("unpacking %s: %w", filepath.Base(archive), err)
		}
	}
	return filepath.Join(dir, diskFile), b.disk(ctx, root, dir)
}

// Content reads the content of the layer. Only a machine can show that the disk has the same
// files.
func (Packer) Content(file string) (image.Content, error) {
	layer, err := image.Layer{}.Content(filepath.Join(filepath.Dir(file), image.LayerName))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%s was not built here: %w", file, err)
	}
	return layer, err
}
