package docker

import (
	"context"
	"errors"
	"fmt"
	"os"

	cerrdefs "github.com/containerd/errdefs"
)

// Load gives the engine the image of an archive (docker load), unless it has it,
// and gives what to call it in a Spec. The id is the image's own; an engine that
// counts otherwise is asked for the reference. An image that was not there before
// goes with Close.
func (s *Substrate) Load(ctx context.Context, archive, id, reference string) (string, error) {
	g := &s.images
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, err := g.inspect(ctx, id); err == nil || !cerrdefs.IsNotFound(err) {
		return p.id, err
	}
	f, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer f.Close()
	loaded, err := g.e.api.ImageLoad(ctx, f)
	if err == nil {
		_, err = lastStatus(loaded.Body)
		err = errors.Join(err, loaded.Body.Close())
	}
	if err = g.e.explain(ctx, "load the image "+archive, err); err != nil {
		return "", err
	}
	p, err := g.inspect(ctx, reference)
	if err != nil {
		return "", fmt.Errorf("after loading it: %w", err)
	}
	g.made = append(g.made, p.id)
	return p.id, nil
}
