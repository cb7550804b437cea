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
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// namePattern matches names that the engine accepts as part of a container's name.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,99}$`)

// killWait bounds the wait for the end of a killed process.
const killWait = 30 * time.Second

// An Instance is a sandbox and, from Start to Stop, the function's container in it.
type Instance struct {
	s       *Substrate
	spec    substrate.Spec
	limits  container.Resources
	user    string // that commands run as, in the engine's format; empty: the image's
	sandbox string // container id
	holder  int    // PID of the sandbox's process
	netns   string
	base    localImage // of Spec.Image

	mu        sync.Mutex
	image     localImage // base, or the last of installed
	installed []string   // IDs of the images with the changes of install scripts
	volumes   []string   // ID of the container that holds the volumes of install scripts; empty: none
	scripts   []string   // names of the variables that install scripts had
	runs      int        // number of one-off containers, for their names
	proc      *process   // the process that Start started last; nil after Stop
	vantage   vitrine.Vantage
	removed   bool
}

// NetNS returns the path of the sandbox's network namespace.
func (i *Instance) NetNS() string { return i.netns }

// Vantage returns where to read the instance's use. While nothing runs, its Missing says so.
func (i *Instance) Vantage() vitrine.Vantage {
	i.mu.Lock()
	defer i.mu.Unlock()
	v := i.vantage
	v.Missing = maps.Clone(v.Missing)
	return v
}

// Start runs the command in a new container that joins the sandbox. With Spec.Image, an
// empty command runs the image's own.
func (i *Instance) Start(ctx context.Context, command vitrine.Command) (substrate.Process, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed {
		return nil, fmt.Errorf("docker: start %s: the instance was removed", i.spec.Name)
	}
	if i.proc != nil {
		if !substrate.Ended(i.proc) {
			return nil, fmt.Errorf("docker: start %s: it is already running: stop it first", i.spec.Name)
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

// Stop ends the process that Start started and all others of its container. The container's
// cgroup is gone when Stop returns. The changes of install scripts are gone too, so that the next
// deployment starts from Spec.Image. When ctx ends, the grace ends too.
func (i *Instance) Stop(ctx context.Context, grace time.Duration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	p, after := i.proc, context.WithoutCancel(ctx)
	if p == nil {
		return i.uninstall(after)
	}
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
	return i.uninstall(after)
}

// uninstall removes what install scripts changed. After a failure it may be called again.
func (i *Instance) uninstall(ctx context.Context) error {
	i.image, i.scripts = i.base, nil
	if err := i.s.removeContainers(ctx, i.volumes); err != nil {
		return err
	}
	i.volumes = nil
	for n := len(i.installed); n > 0; n-- { // each is the parent of the next
		if err := i.s.removeImage(ctx, i.installed[n-1]); err != nil {
			return err
		}
		i.installed = i.installed[:n-1]
	}
	return nil
}

// kill signals the main process of a container. A process that has ended is no error.
func (e *engine) kill(ctx context.Context, id, signal string) error {
	err := e.do(ctx, "send "+signal+" to the container "+id, func(ctx context.Context) error {
		return e.api.ContainerKill(ctx, id, signal)
	})
	if isGone(err) {
		return nil
	}
	return err
}

// Remove removes the instance's containers, running or not, and the changes of its install
// scripts. After a failure it may be called again.
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
	if err := i.uninstall(ctx); err != nil {
		return fmt.Errorf("remove %s: %w", i.spec.Name, err)
	}
	i.s.instances.Forget(i.name(), i)
	return nil
}

// removeContainers removes containers concurrently, because most of the time is waiting.
func (e *engine) removeContainers(ctx context.Context, ids []string) error {
	failures := make([]error, len(ids))
	var wait sync.WaitGroup
	for n, id := range ids {
		wait.Go(func() { failures[n] = e.removeContainer(ctx, id) })
	}
	wait.Wait()
	return errors.Join(failures...)
}

// containerName returns vt-RUN-INSTANCE, or vt-RUN-INSTANCE.ROLE. The engine refuses a name
// that is in use, so no two live containers share one.
func (i *Instance) containerName(role string) string {
	name := runstate.Name(i.spec.Run, i.spec.Name)
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
