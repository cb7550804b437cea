package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"

	"vitrine"
	"vitrine/substrate"
)

// namePattern is what the engine takes as part of a container's name.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,99}$`)

// killWait is how long the end of what was killed is waited for.
const killWait = 30 * time.Second

// An Instance is a sandbox and, from Start to Stop, the function's container in it.
type Instance struct {
	s       *Substrate
	spec    substrate.Spec
	limits  container.Resources
	sandbox string // container id
	netns   string

	mu        sync.Mutex
	image     picture  // of Spec.Image, or the last of installed
	installed []string // images that hold what install scripts changed, by id
	scripts   []string // variables that install scripts had, KEY
	runs      int      // names one-off containers
	proc      *process // what Start started last; nil after Stop
	vantage   vitrine.Vantage
	removed   bool
}

// NetNS is the path of the sandbox's network namespace.
func (i *Instance) NetNS() string { return i.netns }

// Vantage says where the use of what runs can be read; before Start, where it
// will be that it cannot be read yet.
func (i *Instance) Vantage() vitrine.Vantage {
	i.mu.Lock()
	defer i.mu.Unlock()
	v := i.vantage
	v.Missing = maps.Clone(v.Missing)
	return v
}

// Start runs the command in a new container that joins the sandbox. With
// Spec.Image, an empty command runs what the image says.
func (i *Instance) Start(ctx context.Context, command vitrine.Command) (substrate.Process, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed {
		return nil, fmt.Errorf("docker: start %s: it was removed", i.spec.Name)
	}
	if i.proc != nil {
		if !substrate.Ended(i.proc) {
			return nil, fmt.Errorf("docker: start %s: it runs already: stop it first", i.spec.Name)
		}
		if err := i.s.removeContainer(ctx, i.proc.id); err != nil {
			return nil, err
		}
		i.proc.release()
		i.proc = nil
	}
	p, err := i.launch(ctx, i.containerName(""), command, nil)
	if err != nil {
		return nil, err
	}
	i.proc = p
	i.vantage = i.vantageOf(p.pid)
	return p, nil
}

// Stop ends what Start started, and with it all processes of its container,
// whose cgroup is gone on return. When ctx ends, the grace ends with it.
func (i *Instance) Stop(ctx context.Context, grace time.Duration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.proc
	if p == nil {
		return nil
	}
	after := context.WithoutCancel(ctx)
	if !substrate.Ended(p) && grace > 0 {
		err := i.s.kill(after, p.id, "SIGTERM")
		if err != nil {
			return err
		}
		substrate.Await(ctx, p, grace)
	}
	if !substrate.Ended(p) {
		p.killed.Store(true)
		if err := i.s.kill(after, p.id, "SIGKILL"); err != nil {
			return err
		}
		substrate.Await(after, p, killWait)
	}
	if err := i.s.removeContainer(after, p.id); err != nil {
		return err
	}
	p.release()
	i.proc = nil
	i.vantage = i.vantageOf(0)
	return nil
}

// kill signals the main process of a container; one that has ended is no error.
func (e *engine) kill(ctx context.Context, id, signal string) error {
	err := e.do(ctx, "send "+signal+" to the container "+id, func(ctx context.Context) error {
		return e.api.ContainerKill(ctx, id, signal)
	})
	if isGone(err) {
		return nil
	}
	return err
}

// Remove removes the instance's containers, whatever they do, and the images
// that its install scripts led to. It may be called again after a failure.
func (i *Instance) Remove(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removed = true
	if i.proc != nil {
		i.proc.killed.Store(true)
	}
	left, err := i.s.containersWith(ctx, labelRun+"="+i.spec.Run, labelInstance+"="+i.spec.Name)
	if err != nil {
		return fmt.Errorf("remove %s: %w", i.spec.Name, err)
	}
	ids := make([]string, len(left))
	for n, c := range left {
		ids[n] = c.ID
	}
	if err := i.s.removeContainers(ctx, ids); err != nil {
		return fmt.Errorf("remove %s: %w", i.spec.Name, err)
	}
	if i.proc != nil {
		i.proc.release()
		i.proc = nil
	}
	i.vantage = i.vantageOf(0)
	for n := len(i.installed); n > 0; n-- { // each is the parent of the next
		if err := i.s.removeImage(ctx, i.installed[n-1]); err != nil {
			return fmt.Errorf("remove %s: %w", i.spec.Name, err)
		}
		i.installed = i.installed[:n-1]
	}
	i.s.instances.Forget(i.name(), i)
	return nil
}

// removeContainers removes containers side by side: most of it is waiting.
func (e *engine) removeContainers(ctx context.Context, ids []string) error {
	failures := make([]error, len(ids))
	var wait sync.WaitGroup
	for n, id := range ids {
		wait.Go(func() { failures[n] = e.removeContainer(ctx, id) })
	}
	wait.Wait()
	return errors.Join(failures...)
}

// containerName is vt-RUN-INSTANCE, or vt-RUN-INSTANCE-ROLE. A run's name
// cannot be taken twice, for the engine refuses that.
func (i *Instance) containerName(role string) string {
	name := "vt-" + i.spec.Run + "-" + i.spec.Name
	if role != "" {
		name += "." + role
	}
	return name
}

func (i *Instance) labels() map[string]string {
	return map[string]string{
		labelRun: i.spec.Run, labelRoot: i.s.config.Runs,
		labelInstance: i.spec.Name, labelComponent: i.spec.Component,
	}
}
