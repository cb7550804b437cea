package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"vitrine"
	"vitrine/internal/runstate"
)

// A localImage is an image that containers can be made from, with the part of its
// configuration that decides how a command runs.
type localImage struct {
	id         string   // or the tag
	entrypoint []string // runs, with cmd, when the command is empty
	cmd        []string
	env        []string // KEY=value
	user       string
	volumes    bool // it declares some
}

// A gallery holds the images that one Substrate has found, pulled or made.
type gallery struct {
	e    *engine
	root string                // of the runs, for the images' label
	mu   sync.Mutex            // held while an image is pulled or made, so that this happens once
	have map[string]localImage // by reference, or by file identity for static programs
	run  *runstate.Run         // records the loaded images; nil: no record
	made []made                // the images that this gallery added, for removeMade
}

// A made image did not exist in the engine before.
type made struct {
	id     string
	record string // the name of its record (imageKind); empty: the image has a label
}

// byReference finds a local image, or pulls it. It keeps the ID, so that all instances run
// the same image even if the tag moves meanwhile.
func (g *gallery) byReference(ctx context.Context, reference string) (localImage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.have[reference]; ok {
		return p, nil
	}
	p, err := g.inspect(ctx, reference)
	if cerrdefs.IsNotFound(err) {
		if err := g.pull(ctx, reference); err != nil {
			return localImage{}, err
		}
		p, err = g.inspect(ctx, reference)
	}
	if cerrdefs.IsInvalidArgument(err) {
		err = &vitrine.BadInput{File: "image " + reference, Found: err.Error(), Want: "a reference such as kamailio:5.6"}
	}
	if err == nil {
		g.have[reference] = p
	}
	return p, err
}

func (g *gallery) inspect(ctx context.Context, reference string) (localImage, error) {
	i, err := call(ctx, g.e, "look for the image "+reference, func(ctx context.Context) (image.InspectResponse, error) {
		return g.e.api.ImageInspect(ctx, reference)
	})
	p := localImage{id: i.ID}
	if c := i.Config; err == nil && c != nil {
		p.entrypoint, p.cmd, p.env, p.user, p.volumes = c.Entrypoint, c.Cmd, c.Env, c.User, len(c.Volumes) > 0
	}
	return p, err
}

// pull fetches the image from its registry. Only ctx bounds the time.
func (g *gallery) pull(ctx context.Context, reference string) error {
	progress, err := g.e.api.ImagePull(ctx, reference, image.PullOptions{})
	if err == nil {
		_, err = lastStatus(progress)
		progress.Close()
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || isLost(err):
		return g.e.explain(ctx, "pull the image "+reference, err)
	}
	return &vitrine.BadInput{
		File:  "image " + reference,
		Found: "not on this host, and pulling it failed: " + err.Error(),
		Want:  "add it with docker pull, docker load or docker import, or correct the reference",
	}
}

// lastStatus reads the engine's stream of progress messages to its end and returns the last
// status. Errors come in the stream, because the HTTP status is already 200.
func lastStatus(progress io.Reader) (string, error) {
	var status string
	for messages := json.NewDecoder(progress); ; {
		var m struct {
			Status string
			Error  string
		}
		switch err := messages.Decode(&m); {
		case errors.Is(err, io.EOF):
			return status, nil
		case err != nil:
			return "", err
		case m.Error != "":
			return "", errors.New(m.Error)
		}
		if m.Status != "" {
			status = m.Status
		}
	}
}

// removeMade removes the images that this gallery made and nobody else uses now. Clean
// removes the others later.
func (g *gallery) removeMade(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var left []made
	var failed error
	for _, m := range g.made {
		err := g.e.removeImage(ctx, m.id)
		if err == nil {
			err = g.erase(m.record)
		}
		if err != nil && !cerrdefs.IsConflict(err) {
			left = append(left, m)
			failed = errors.Join(failed, err)
		}
	}
	g.made = left
	clear(g.have)
	return failed
}

// removeImage removes an image, but not its parents. An image that containers use stays,
// and cerrdefs.IsConflict is true of the error.
func (e *engine) removeImage(ctx context.Context, id string) error {
	err := e.do(ctx, fmt.Sprintf("remove the image %s", id), func(ctx context.Context) error {
		_, err := e.api.ImageRemove(ctx, id, image.RemoveOptions{})
		return err
	})
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return err
}
