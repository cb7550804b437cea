package docker

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"vitrine"
	"vitrine/internal/pidfd"
)

// plainRuntime is the runtime of sandboxes where the engine has it: they only
// hold namespaces of the host's kernel, which other runtimes may not make.
const plainRuntime = "runc"

// shimPrefix is that of runtimes that containerd finds by their programs,
// containerd-shim-*, and that the engine knows only once asked for:
// io.containerd.kata.v2.
const shimPrefix = "io.containerd."

// checkRuntime sees that the engine has the runtime that the user asks for.
func (e *engine) checkRuntime(name string) error {
	_, has := e.info.Runtimes[name]
	if name == "" || has || strings.HasPrefix(name, shimPrefix) {
		return nil
	}
	return e.noRuntime(name)
}

// isUnknownRuntime says whether the engine refused a container for its runtime.
func isUnknownRuntime(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "unknown runtime") || strings.Contains(text, "invalid runtime")
}

// cannotRun is the error of a runtime, not the plain one, that started nothing:
// it is for want of what it needs of the host's kernel and processor.
func cannotRun(name string, err error) error {
	return &vitrine.Unsupported{What: "docker: the runtime " + name, Missing: "what it needs: " + err.Error(),
		Do: "see its documentation, and the arguments that the engine's configuration gives it"}
}

// killStray ends what a runtime leaves that has failed to start a container:
// the engine forgets about it. The processes are in the container's cgroup or
// have its id, which nothing else has, for an argument.
func killStray(id string) error {
	stray, err := pidfd.Where(func(p procfs.Proc) bool {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID)) // gone: ended meanwhile
		args, _ := p.CmdLine()
		return strings.Contains(string(groups), id) || slices.Contains(args, id)
	})
	if err == nil {
		defer stray.Close()
		err = stray.Kill()
	}
	if err != nil {
		return fmt.Errorf("docker: ending what a runtime has left: %w", err)
	}
	return nil
}

// noRuntime says that the engine has no such runtime, and which it has.
func (e *engine) noRuntime(name string) error {
	return &vitrine.Unsupported{What: "docker: the runtime " + name,
		Missing: fmt.Sprintf("the runtime: the engine at %s has %s", e.host, strings.Join(e.runtimes(), ", ")),
		Do:      fmt.Sprintf("install %s and name it in the engine's configuration (\"runtimes\" in /etc/docker/daemon.json), then restart the engine", name)}
}

func (e *engine) runtimes() []string { return slices.Sorted(maps.Keys(e.info.Runtimes)) }

// sandboxRuntime is that of the instance's sandbox; empty: the engine's default.
func (e *engine) sandboxRuntime() string {
	if _, has := e.info.Runtimes[plainRuntime]; has {
		return plainRuntime
	}
	return ""
}
