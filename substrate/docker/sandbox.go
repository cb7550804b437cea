package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"vitrine"
	"vitrine/substrate"
)

// hostsFile is the /etc/hosts of the instance's containers, in Spec.Dir.
const hostsFile = "hosts"

// makeSandbox makes and starts the container that holds the instance's namespaces. It needs
// no limits, because it sleeps.
//
// Its network is disabled, which differs from the network "none": the runtime makes the
// namespace, with lo up, without the engine's network controller. That starts three times
// as fast, but vitrine must write /etc/hosts itself.
func (i *Instance) makeSandbox(ctx context.Context) error {
	hosts := "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 " + i.spec.Name + "\n"
	// A container of an earlier instance of this name may have put a link in place of the file.
	if err := substrate.WriteFile(i.spec.Dir, hostsFile, []byte(hosts), 0o644); err != nil {
		return fmt.Errorf("docker: create %s: %w", i.spec.Name, err)
	}
	config := &container.Config{Hostname: i.spec.Name, Labels: i.labels(), NetworkDisabled: true}
	host := &container.HostConfig{
		NetworkMode: "none", IpcMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"},
		SecurityOpt: []string{noNewPrivileges}, LogConfig: container.LogConfig{Type: "none"},
		Runtime: i.s.sandboxRuntime(),
	}
	id, err := i.createFrom(ctx, &i.s.pause, localImage{}, i.containerName("sandbox"), config, host)
	if err != nil {
		return err
	}
	i.sandbox = id
	if err := i.s.start(ctx, id, i.spec.Name+"'s sandbox"); err != nil {
		return err
	}
	state, err := i.s.inspect(ctx, id)
	if err != nil {
		return err
	}
	// Only containers on this host can be wired. The program's name is no proof, because
	// start returns a moment before its exec.
	if !isHere(id, state.Pid) {
		return &vitrine.Unsupported{What: "docker", Missing: fmt.Sprintf("an engine on this host that makes cgroups: the containers of %s are not visible here", i.s.host),
			Do: "run vitrine where the engine runs, in the same PID namespace"}
	}
	i.holder = state.Pid
	if i.s.namespaces {
		i.netns = fmt.Sprintf("/proc/%d/ns/net", state.Pid)
	}
	return nil
}

// isHere reports whether the process ID that the engine reports belongs to the container.
// The engine of another host or virtual machine reports IDs that belong to another
// process here, or to none.
func isHere(id string, pid int) bool {
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(cgroups), id)
}

// createFrom makes a container from a localImage, or from a static program's image.
func (i *Instance) createFrom(ctx context.Context, program *static, p localImage, name string, config *container.Config, host *container.HostConfig) (id string, err error) {
	for attempt := 1; ; attempt++ {
		if program != nil {
			if p, err = i.s.images.fromStatic(ctx, i.spec.Run, *program); err != nil {
				return "", err
			}
			// config.Cmd may hold arguments already; only the program comes from the image.
			config.Entrypoint = p.cmd
		}
		config.Image = p.id
		id, err = i.s.create(ctx, name, config, host)
		if !cerrdefs.IsNotFound(err) || attempt > 1 {
			return id, err
		}
		if program != nil {
			i.s.images.forget(program.key) // another run's Close or Clean removed the image
		} else if err := i.findAgain(ctx); err != nil {
			return "", err
		}
	}
}

// findAgain looks for Spec.Image again, which somebody has removed from the engine. If the reference
// now names another image, this instance does not run that, because its deployments must be alike.
// Instances made later do.
func (i *Instance) findAgain(ctx context.Context) error {
	i.s.images.forget(i.spec.Image)
	p, err := i.s.images.byReference(ctx, i.spec.Image)
	if err == nil && p.id != i.base.id {
		err = fmt.Errorf("docker: the image of %s was removed, and %s now names another image: make the instance again", i.spec.Name, i.spec.Image)
	}
	return err
}

// create makes a container. It ignores the end of ctx, because a call cut short would leave
// it unknown whether there is a container to remove.
func (s *Substrate) create(ctx context.Context, name string, config *container.Config, host *container.HostConfig) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("docker: create the container %s: %w", name, context.Cause(ctx))
	}
	made, err := call(context.WithoutCancel(ctx), s.engine, "create the container "+name, func(ctx context.Context) (container.CreateResponse, error) {
		return s.api.ContainerCreate(ctx, config, host, nil, nil, name)
	})
	for _, warning := range made.Warnings {
		if strings.Contains(warning, "discarded") { // "Your kernel does not support ... Limitation discarded."
			err = errors.Join(err, &vitrine.Unsupported{What: "docker: the instance's limits", Missing: warning})
		}
	}
	if err != nil && isUnknownRuntime(err) {
		err = s.noRuntime(host.Runtime)
	}
	if err != nil && made.ID != "" {
		err = errors.Join(err, s.removeContainer(context.WithoutCancel(ctx), made.ID))
	}
	return made.ID, err
}

func (s *Substrate) start(ctx context.Context, id, what string) error {
	return s.do(ctx, "start "+what, func(ctx context.Context) error {
		return s.api.ContainerStart(ctx, id, container.StartOptions{})
	})
}

func (s *Substrate) inspect(ctx context.Context, id string) (*container.State, error) {
	c, err := call(ctx, s.engine, "inspect the container "+id, func(ctx context.Context) (container.InspectResponse, error) {
		return s.api.ContainerInspect(ctx, id)
	})
	if err != nil {
		return nil, err
	}
	return c.State, nil
}

// removeContainer kills and removes a container. A container that is gone, or that somebody
// else is removing, is no error.
func (e *engine) removeContainer(ctx context.Context, id string) error {
	err := e.do(ctx, "remove the container "+id, func(ctx context.Context) error {
		return e.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return err
}

// containersWith lists the containers, running or not, that have the labels.
func (e *engine) containersWith(ctx context.Context, labels ...string) ([]container.Summary, error) {
	var args []filters.KeyValuePair
	for _, l := range labels {
		args = append(args, filters.Arg("label", l))
	}
	return call(ctx, e, "list containers", func(ctx context.Context) ([]container.Summary, error) {
		return e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(args...)})
	})
}
