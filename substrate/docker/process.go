package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"vitrine/substrate"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"golang.org/x/sys/unix"

	"vitrine"
)

// A process is the main process of a container, also before its start.
type process struct {
	s      *Substrate
	id     string // the container's
	name   string // for errors
	memory int64  // limit, bytes
	pid    int    // 0: ended before the engine was asked
	env    []string

	stream types.HijackedResponse // standard output and error
	out    *output
	killed atomic.Bool        // Stop or Remove killed it
	cancel context.CancelFunc // makes watch give up
	done   chan struct{}
	err    error
}

// Done is closed when the process has ended and all its output is written.
func (p *process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended. It waits for Done.
func (p *process) Err() error {
	<-p.done
	return p.err
}

// release ends watch for a process whose container is removed. The engine has reported the
// end by then; if it has not, it never will.
func (p *process) release() {
	substrate.Await(context.Background(), p, time.Second)
	p.cancel()
	<-p.done
}

// launch makes a container for the command in the sandbox and starts it. Its output goes to
// the instance's log or the command's file, and also to the tail if that is not nil. On
// failure, launch leaves nothing behind.
func (i *Instance) launch(ctx context.Context, name string, command vitrine.Command, copyTo *tail) (*process, error) {
	config, host, program, err := i.container(command)
	if err != nil {
		return nil, err
	}
	out, err := openOutput(i.spec.Dir, command.Stdout, copyTo)
	if err != nil {
		return nil, err
	}
	p := &process{s: i.s, name: i.spec.Name, memory: i.spec.Memory, env: command.Env, out: out, done: make(chan struct{})}
	if p.id, err = i.createFrom(ctx, program, i.image, name, config, host); err != nil {
		return nil, errors.Join(err, out.close())
	}
	if err := i.startWatched(ctx, p); err != nil {
		removed := i.s.removeContainer(context.WithoutCancel(ctx), p.id)
		if isNoProgram(err) {
			err = &vitrine.BadInput{File: i.spec.Name, Found: strings.Join(config.Entrypoint, " ") + " cannot run in its image: " + err.Error(),
				Want: "a program that the image has"}
		} else if host.Runtime != "" && host.Runtime != plainRuntime && ctx.Err() == nil && !isLost(err) {
			err = errors.Join(cannotRun(host.Runtime, err), killStray(p.id))
		}
		return nil, errors.Join(err, out.close(), removed)
	}
	return p, nil
}

// startWatched starts the container, and a goroutine that watches it.
func (i *Instance) startWatched(ctx context.Context, p *process) (err error) {
	p.stream, err = i.s.hijack(ctx, "attach to "+p.name, func(ctx context.Context) (types.HijackedResponse, error) {
		return i.s.api.ContainerAttach(ctx, p.id, container.AttachOptions{Stream: true, Stdout: true, Stderr: true})
	})
	if err != nil {
		return err
	}
	if err := i.s.start(ctx, p.id, p.name); err != nil {
		p.stream.Close()
		return err
	}
	state, err := i.s.inspect(ctx, p.id)
	if err != nil {
		p.stream.Close()
		return err
	}
	p.pid = state.Pid
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	go p.watch(watching)
	return nil
}

// isNoProgram reports whether a start failed because the program cannot be executed.
func isNoProgram(err error) bool {
	text := err.Error()
	return cerrdefs.IsInvalidArgument(err) && strings.Contains(text, "exec") ||
		strings.Contains(text, "executable file not found") || strings.Contains(text, "exec format error")
}

// watch copies the output until the last writer has closed it, then asks how the process ended.
func (p *process) watch(ctx context.Context) {
	defer close(p.done)
	stop := context.AfterFunc(ctx, func() { p.stream.Close() })
	_, copied := stdcopy.StdCopy(p.out.stdout, p.out.stderr, p.stream.Reader)
	if stop() {
		p.stream.Close()
	}
	p.err = p.waitEnd(ctx)
	if p.err == nil && copied != nil {
		p.err = fmt.Errorf("docker: %s: its output was cut off: %w", p.name, copied)
	}
	if err := p.out.close(); err != nil {
		p.err = errors.Join(p.err, err)
	}
}

// waitEnd waits for the end and returns the error; nil for status 0.
func (p *process) waitEnd(ctx context.Context) error {
	ends, failed := p.s.api.ContainerWait(ctx, p.id, container.WaitConditionNotRunning)
	var status int64
	select {
	case end := <-ends:
		if end.Error != nil {
			return fmt.Errorf("docker: %s: %s", p.name, end.Error.Message)
		}
		status = end.StatusCode
	case err := <-failed:
		if cerrdefs.IsNotFound(err) {
			return fmt.Errorf("docker: %s was removed while it ran", p.name)
		}
		return p.s.explain(ctx, "wait for the end of "+p.name, err)
	}
	if status == 0 {
		return nil
	}
	switch state, err := p.s.inspect(ctx, p.id); {
	case err == nil && state.OOMKilled:
		return fmt.Errorf("docker: %s: out of memory: the kernel killed one of its processes at the limit of %d MiB: %w", p.name, p.memory>>20, statusError(status))
	case status == killedStatus && p.memory > 0 && !p.killed.Load():
		// The engine learns of the OOM kill and of the end separately, in either order.
		return fmt.Errorf("docker: %s: killed, most likely by the kernel for exceeding its limit of %d MiB of memory: %w", p.name, p.memory>>20, statusError(status))
	}
	return fmt.Errorf("docker: %s: %w", p.name, statusError(status))
}

// killedStatus is the exit status of a process that SIGKILL ended.
const killedStatus = 128 + int64(unix.SIGKILL)

// A statusError is an exit status other than 0. The engine reports a process that a signal
// ended as 128 plus the signal's number.
type statusError int64

func (s statusError) Error() string {
	if s > 128 {
		if name := unix.SignalName(unix.Signal(s - 128)); name != "" {
			return fmt.Sprintf("exit status %d (%s)", int64(s), name)
		}
	}
	return fmt.Sprintf("exit status %d", int64(s))
}

// container returns the configuration of the command's container. If program is not nil,
// the container's image must be made from it.
func (i *Instance) container(command vitrine.Command) (*container.Config, *container.HostConfig, *static, error) {
	config := &container.Config{
		Labels: i.labels(), AttachStdout: true, AttachStderr: true,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, // the image's health check would use the instance's CPU
		WorkingDir:  command.Dir, User: cmp.Or(i.user, i.image.user),
	}
	if config.WorkingDir == "" {
		config.WorkingDir = i.spec.Dir
	}
	host := &container.HostConfig{
		NetworkMode: container.NetworkMode("container:" + i.sandbox), PidMode: container.PidMode("container:" + i.sandbox),
		IpcMode: "private", Resources: i.limits, Mounts: i.s.mounts(i.spec), VolumesFrom: i.volumes,
		LogConfig:   container.LogConfig{Type: "none"},
		Runtime:     i.s.config.Runtime,
		SecurityOpt: []string{"label=disable"}, // SELinux would block the instance's folder
	}
	if !i.spec.AllowPrivilegeEscalation {
		host.SecurityOpt = append(host.SecurityOpt, noNewPrivileges)
	}
	if !i.s.namespaces {
		host.NetworkMode = "host"
	}
	var program *static
	switch args := command.Args; {
	case i.spec.Image == "" && len(args) == 0:
		return nil, nil, nil, &vitrine.BadInput{File: i.spec.Name, Found: "neither command nor image", Want: "at least one"}
	case i.spec.Image == "":
		s, err := staticFile(args[0])
		if err != nil {
			return nil, nil, nil, err
		}
		program, config.Cmd = &s, args[1:]
		if uid := os.Geteuid(); uid != 0 && i.user == "" {
			config.User = fmt.Sprintf("%d:%d", uid, os.Getegid()) // the user then owns the files that the container writes
		}
	case len(args) > 0:
		config.Entrypoint, config.Cmd = args[:1], args[1:]
	case len(i.image.entrypoint)+len(i.image.cmd) == 0:
		return nil, nil, nil, &vitrine.BadInput{File: i.spec.Name, Found: "no command, and none in the image " + i.spec.Image, Want: "a command"}
	default:
		config.Entrypoint, config.Cmd = i.image.entrypoint, i.image.cmd
	}
	config.Env = i.environment(command.Env)
	return config, host, program, nil
}

// environment returns the image's variables, overridden by the command's. A name without a
// value makes the engine leave that variable out; HOSTNAME is the engine's own addition.
func (i *Instance) environment(env []string) []string {
	return substrate.MergeEnvironment([]string{"HOSTNAME"}, i.scripts, i.image.env, env)
}
