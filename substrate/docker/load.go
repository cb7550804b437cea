package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	cerrdefs "github.com/containerd/errdefs"

	"vitrine/internal/runstate"
)

// imageKind returns the kind of record for images that a run gives this engine. Each engine has a
// kind of its own, so that cleaning asks an engine only for its images. A record's name is the
// archive's image ID, or the engine's ID of an image that another run loaded (cleanLoaded). Its value
// is the reference, the ID that the reference had before (empty: none), and the ID of the image that
// was loaded (missing while the load runs).
// Such an image has no label, because it must be identical everywhere.
func (e *engine) imageKind() string { return "docker-image@" + e.engineRecord() }

// Load gives the engine the image of an archive (docker load), unless it has that image
// already, and returns its name for a Spec. id is the archive's image ID. An engine that
// computes other IDs is asked for the reference. Close removes an image that Load added.
func (s *Substrate) Load(ctx context.Context, archive, id, reference string) (string, error) {
	g := &s.images
	g.mu.Lock()
	defer g.mu.Unlock()
	known := id
	if p, ok := g.have[id]; ok {
		known = p.id
	}
	if p, err := g.inspect(ctx, known); err == nil || !cerrdefs.IsNotFound(err) {
		return p.id, err
	}
	was, err := g.inspect(ctx, reference)
	if err != nil && !cerrdefs.IsNotFound(err) {
		return "", err
	}
	if err := errors.Join(s.recordEngine(), g.record(id, reference+" "+was.id)); err != nil {
		return "", err
	}
	if err := g.load(ctx, archive); err != nil {
		return "", err
	}
	p, err := g.inspect(ctx, reference)
	if err != nil {
		return "", fmt.Errorf("after loading it: %w", err)
	}
	g.have[id] = p
	if p.id == was.id { // the engine had it already
		return p.id, g.erase(id)
	}
	g.made = append(g.made, made{id: p.id, record: id})
	// Cleaning goes by this ID from here on: somebody else may give the reference to another image.
	return p.id, g.record(id, reference+" "+was.id+" "+p.id)
}

func (g *gallery) load(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	loaded, err := g.e.api.ImageLoad(ctx, f)
	if err == nil {
		_, err = lastStatus(loaded.Body)
		err = errors.Join(err, loaded.Body.Close())
	}
	return g.e.explain(ctx, "load the image "+archive, err)
}

func (g *gallery) record(name, value string) error {
	if g.run == nil {
		return nil
	}
	return g.run.Record(g.e.imageKind(), name, []byte(value))
}

func (g *gallery) erase(name string) error {
	if g.run == nil || name == "" {
		return nil
	}
	return g.run.Erase(g.e.imageKind(), name)
}

// cleanLoaded removes the images that dead runs gave this engine. If an image is still in use, the
// run that cleans takes over its record. The record outlives that run, so a later Clean tries again.
// Its new name is the engine's ID, because a Load by this run would erase the archive's ID.
func (s *Substrate) cleanLoaded(ctx context.Context) (removed []string, err error) {
	return runstate.EachDead(s.config.Runs, func(run string) ([]string, error) {
		return runstate.Undo(s.config.Runs, run, s.imageKind(), func(_ string, value []byte) (string, error) {
			reference, ids, _ := strings.Cut(string(value), " ")
			was, loaded, _ := strings.Cut(ids, " ")
			p, err := s.images.inspect(ctx, cmp.Or(loaded, reference))
			if cerrdefs.IsNotFound(err) || err == nil && p.id == was {
				return "", nil
			}
			if err == nil {
				err = s.removeImage(ctx, p.id)
			}
			if cerrdefs.IsConflict(err) && s.runLives() {
				return "", errors.Join(s.recordEngine(), s.images.record(p.id, string(value)))
			}
			if err != nil {
				return "", err
			}
			return "docker image " + reference, nil
		})
	})
}

// runLives reports whether this substrate has a run that is alive. A failed run has ended when it
// cleans up after itself, and would lose a record that it takes over.
func (s *Substrate) runLives() bool {
	return s.config.Run != nil && runstate.Alive(s.config.Runs, s.config.Run.ID)
}
