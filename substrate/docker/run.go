package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"vitrine/substrate"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/prometheus/procfs"

	"vitrine"
)

// Run runs a command in the instance to its end. With Spec.Image and a running function, it
// runs in the function's container. Otherwise it runs in its own container with the same
// limits, namespaces and mounts. Changes that a command before Start makes to the files and
// volumes of Spec.Image are kept until Stop, so install scripts can install. A script must lie
// where the container sees it, in Spec.Dir.
func (i *Instance) Run(ctx context.Context, command vitrine.Command) error {
	var out tail
	inside, err := i.runIn(ctx, command, &out)
	if !inside && err == nil {
		err = i.runAlone(ctx, command, &out)
	}
	if err == nil || vitrine.IsBadInput(err) {
		return err
	}
	return fmt.Errorf("run %s in %s: %w%s", strings.Join(command.Args, " "), i.spec.Name, err, out.String())
}

// runAlone runs the command in its own container.
func (i *Instance) runAlone(ctx context.Context, command vitrine.Command, out *tail) error {
	p, err := i.launchAlone(ctx, command, out)
	if err != nil {
		return err
	}
	after := context.WithoutCancel(ctx)
	select {
	case <-p.done:
		err = p.err
		if err == nil && i.spec.Image != "" {
			err = i.keepChanges(ctx, p)
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	removed := i.s.removeContainer(after, p.id)
	p.release()
	return errors.Join(err, removed)
}

func (i *Instance) launchAlone(ctx context.Context, command vitrine.Command, out *tail) (*process, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed {
		return nil, errors.New("docker: the instance was removed")
	}
	if err := i.holdVolumes(ctx); err != nil {
		return nil, err
	}
	i.runs++
	return i.launch(ctx, i.containerName(fmt.Sprintf("run%d", i.runs)), command, out)
}

// holdVolumes makes a container before the first install script. It holds the volumes that the image
// declares, and all later containers share them. Otherwise each container would get new volumes,
// because a commit does not include any.
func (i *Instance) holdVolumes(ctx context.Context) error {
	if !i.image.volumes || len(i.volumes) > 0 || i.proc != nil {
		return nil
	}
	config := &container.Config{Labels: i.labels(), Cmd: []string{"none"}} // it never runs
	host := &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}}
	id, err := i.createFrom(ctx, nil, i.image, i.containerName("volumes"), config, host)
	if err == nil {
		i.volumes = []string{id}
	}
	return err
}

// keepChanges commits the container's changed files as the image for later commands, unless
// the function already runs.
func (i *Instance) keepChanges(ctx context.Context, p *process) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.proc != nil || i.removed {
		return nil
	}
	made, err := i.s.api.ContainerCommit(ctx, p.id, container.CommitOptions{})
	if err != nil {
		return i.s.explain(ctx, "commit the files installed in "+i.spec.Name, err)
	}
	i.image.id = made.ID
	i.installed = append(i.installed, made.ID)
	for _, variable := range p.env {
		name, _, _ := strings.Cut(variable, "=")
		i.scripts = append(i.scripts, name)
	}
	return nil
}

// runIn runs the command in the function's running container, where it finds the function's
// files and sockets. It reports whether there is such a container.
func (i *Instance) runIn(ctx context.Context, command vitrine.Command, tail *tail) (inside bool, err error) {
	i.mu.Lock()
	p := i.proc
	i.mu.Unlock()
	if i.spec.Image == "" || p == nil || substrate.Ended(p) || len(command.Args) == 0 {
		return false, nil
	}
	out, err := openOutput(i.spec.Dir, command.Stdout, tail)
	if err != nil {
		return true, err
	}
	return true, errors.Join(i.exec(ctx, p, command, out), out.close())
}

func (i *Instance) exec(ctx context.Context, p *process, command vitrine.Command, out *output) error {
	options := container.ExecOptions{AttachStdout: true, AttachStderr: true, Cmd: command.Args, WorkingDir: command.Dir}
	for _, variable := range p.env { // a name without a value leaves out the function's own variable
		name, _, _ := strings.Cut(variable, "=")
		options.Env = append(options.Env, name)
	}
	options.Env = append(options.Env, command.Env...)
	made, err := call(ctx, i.s.engine, "prepare a command", func(ctx context.Context) (container.ExecCreateResponse, error) {
		return i.s.api.ContainerExecCreate(ctx, p.id, options)
	})
	if err != nil {
		return err
	}
	stream, err := i.s.hijack(ctx, "start a command", func(ctx context.Context) (types.HijackedResponse, error) {
		return i.s.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	})
	if err != nil {
		if ctx.Err() != nil { // it may have started nevertheless
			_ = i.s.execEnd(ctx, p.id, made.ID)
		}
		return err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	_, copied := stdcopy.StdCopy(out.stdout, out.stderr, stream.Reader)
	if stop() {
		stream.Close()
	}
	if err := i.s.execEnd(ctx, p.id, made.ID); err != nil {
		return err
	}
	return copied
}

// execTick is the interval at which execEnd asks whether a command has ended.
const execTick = 5 * time.Millisecond

// execEnd waits for the end of a command whose output has ended. The engine may still report the
// command as running then, and has no call that waits. When ctx ends, execEnd kills the command.
func (s *Substrate) execEnd(ctx context.Context, id, exec string) error {
	tick := time.NewTicker(execTick)
	defer tick.Stop()
	patience := int(killWait / execTick) // ticks to wait for the process ID once ctx has ended
	for {
		state, err := call(context.WithoutCancel(ctx), s.engine, "ask how a command ended", func(ctx context.Context) (container.ExecInspect, error) {
			return s.api.ContainerExecInspect(ctx, exec)
		})
		switch {
		case err != nil:
			return errors.Join(err, context.Cause(ctx))
		case ctx.Err() != nil && state.Running && state.Pid > 0:
			return errors.Join(context.Cause(ctx), killTree(id, state.Pid))
		case ctx.Err() != nil && state.Running && patience == 0:
			return errors.Join(context.Cause(ctx), errors.New("docker: cannot end the command: the engine reports no process ID"))
		case ctx.Err() != nil && state.Running: // about to start
			patience--
		case state.Running:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case state.ExitCode != 0:
			return statusError(state.ExitCode)
		default:
			return nil
		}
		<-tick.C
	}
}

// killTree kills a process of a container and its descendants. The engine has no call that
// ends a command started in a running container.
func killTree(id string, root int) error {
	if root <= 1 || !isHere(id, root) {
		return nil // ended, and another process may have its number by now
	}
	all, err := procfs.AllProcs()
	if err != nil {
		return fmt.Errorf("docker: end a command: %w", err)
	}
	children := make(map[int][]int)
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // otherwise it has just ended
			children[stat.PPID] = append(children[stat.PPID], p.PID)
		}
	}
	for tree := []int{root}; len(tree) > 0; tree = tree[1:] {
		tree = append(tree, children[tree[0]]...)
		if err := syscall.Kill(tree[0], syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("docker: end a command, process %d: %w", tree[0], err)
		}
	}
	return nil
}
