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

// plainRuntime is the runtime of sandboxes if the engine has it. A sandbox only holds
// namespaces of the host's kernel, which other runtimes may not make.
const plainRuntime = "runc"

// shimPrefix is the prefix of runtimes, such as io.containerd.kata.v2, that containerd
// finds by their programs (containerd-shim-*). The engine does not list them.
const shimPrefix = "io.containerd."

// checkRuntime checks that the engine has the runtime that the user asks for.
func (e *engine) checkRuntime(name string) error {
	_, has := e.info.Runtimes[name]
	if name == "" || has || strings.HasPrefix(name, shimPrefix) {
		return nil
	}
	return e.noRuntime(name)
}

// isUnknownRuntime reports whether the engine refused a container because of its runtime.
func isUnknownRuntime(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "unknown runtime") || strings.Contains(text, "invalid runtime")
}

// cannotRun returns the error for a runtime other than plainRuntime that failed to start.
// The usual cause is a missing feature of the host's kernel or processor.
func cannotRun(name string, err error) error {
	return &vitrine.Unsupported{What: "docker: the runtime " + name, Missing: "something that it needs: " + err.Error(),
		Do: "see its documentation, and the arguments that the engine's configuration gives it"}
}

// killStray kills the processes that a runtime leaves after it failed to start a container, because
// the engine forgets them. They are in the container's cgroup or have its unique ID as an argument.
func killStray(id string) error {
	stray, err := pidfd.Where(func(p procfs.Proc) bool {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID)) // an error means that it has ended
		args, _ := p.CmdLine()
		return strings.Contains(string(groups), id) || slices.Contains(args, id)
	})
	if err == nil {
		defer stray.Close()
		err = stray.Kill()
	}
	if err != nil {
		return fmt.Errorf("docker: killing the processes of a failed runtime: %w", err)
	}
	return nil
}

// noRuntime returns the error for a runtime that the engine does not have; it lists
// those that the engine has.
func (e *engine) noRuntime(name string) error {
	return &vitrine.Unsupported{What: "docker: the runtime " + name,
		Missing: fmt.Sprintf("the runtime: the engine at %s has %s", e.host, strings.Join(e.runtimes(), ", ")),
		Do:      fmt.Sprintf("install %s and name it in the engine's configuration (\"runtimes\" in /etc/docker/daemon.json), then restart the engine", name)}
}

func (e *engine) runtimes() []string { return slices.Sorted(maps.Keys(e.info.Runtimes)) }

// sandboxRuntime returns the runtime of the instance's sandbox; empty: the engine's default.
func (e *engine) sandboxRuntime() string {
	if _, has := e.info.Runtimes[plainRuntime]; has {
		return plainRuntime
	}
	return ""
}
