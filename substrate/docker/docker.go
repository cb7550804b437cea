// Package docker runs instances as containers of the Docker Engine on this host,
// through the engine's API.
//
// An instance is two containers, like a pod in Kubernetes. The sandbox holds the network
// and PID namespaces and sleeps; the function's container joins them. So a fabric can wire
// an instance before anything runs in it, and the wiring outlives stop and start. The
// function's process is also not process 1, so SIGTERM ends it even if it has no handler.
package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"vitrine"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// Labels of all containers and images that this package makes.
const (
	labelRun       = "vitrine.run"  // the run's id
	labelRoot      = "vitrine.root" // the folder that records whether the run is alive
	labelInstance  = "vitrine.instance"
	labelComponent = "vitrine.component"
)

// Config is the section servers.docker of a deployment.
type Config struct {
	// Host is the engine's socket; empty: unix:///var/run/docker.sock. The engine
	// must run on this host.
	Host string `yaml:"host" json:"host,omitempty"`

	// Network is namespace (one for each instance) or host (for a user who may not enter
	// namespaces, so that no fabric could wire them). auto or empty selects namespace if
	// this user can use it, else host.
	Network string `yaml:"network" json:"network,omitempty" jsonschema:"enum=auto,enum=namespace,enum=host"`

	// Runtime is the OCI runtime of instances, by the engine's name for it: runc, crun,
	// runsc (gVisor), kata or io.containerd.kata.v2. The default is the engine's default.
	Runtime string `yaml:"runtime,omitempty" json:"runtime,omitempty"`

	// Mounts are visible in every instance, besides its own folder.
	Mounts []Mount `yaml:"mounts" json:"mounts,omitempty"`

	Folder string `yaml:"-" json:"-"` // the deployment's folder; relative sources of mounts are below it
	Runs   string `yaml:"-" json:"-"` // root of internal/runstate; empty: runstate.DefaultRoot()

	Run *runstate.Run `yaml:"-" json:"-"` // records the engine, and the images that Load gives it; nil: no record
}

// A Mount makes a file or folder of the host visible in the instances.
type Mount struct {
	Source   string `yaml:"source" json:"source"`
	Target   string `yaml:"target" json:"target"`                         // absolute
	Writable bool   `yaml:"writable,omitempty" json:"writable,omitempty"` // false: read-only
}

// A Substrate makes instances as containers.
type Substrate struct {
	config Config
	*engine
	images     gallery
	pause      static
	namespaces bool // instances have their own network namespaces

	recording sync.Mutex // guards recorded
	recorded  bool       // the run's record has the engine

	creating  sync.RWMutex // Create holds the read lock, Close the write lock
	instances substrate.Roster
}

var (
	_ substrate.Substrate = (*Substrate)(nil)
	_ vitrine.Cleaner     = (*Substrate)(nil)
	_ vitrine.Checker     = (*Substrate)(nil)
)

// New connects to the engine. The error is a *vitrine.Unsupported if the engine does not
// run, this user may not use it, or it lacks the runtime or the network.
func New(ctx context.Context, config Config) (*Substrate, error) {
	if config.Runs == "" {
		config.Runs = runstate.DefaultRoot()
	}
	config, err := config.resolve()
	if err != nil {
		return nil, err
	}
	namespaces, err := config.namespaces()
	if err != nil {
		return nil, err
	}
	pause, err := pauseStatic()
	if err != nil {
		return nil, err
	}
	e, err := dialEngine(ctx, config.Host)
	if err != nil {
		return nil, err
	}
	err = e.checkRuntime(config.Runtime)
	if err == nil && !namespaces {
		err = e.checkHostNetwork()
	}
	if err != nil {
		return nil, errors.Join(err, e.api.Close())
	}
	return &Substrate{
		config: config, engine: e, pause: pause, namespaces: namespaces,
		images:    gallery{e: e, root: config.Runs, run: config.Run, have: make(map[string]localImage)},
		instances: substrate.Roster{Limit: removals},
	}, nil
}

// Create makes the instance's sandbox, whose network namespace has only lo, and finds or pulls
// the instance's image. An image that is neither local nor can be pulled is a *vitrine.BadInput.
func (s *Substrate) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	s.creating.RLock()
	defer s.creating.RUnlock()
	if !namePattern.MatchString(spec.Name) || !namePattern.MatchString(spec.Run) {
		return nil, &vitrine.BadInput{File: "docker", Found: fmt.Sprintf("instance %q of run %q", spec.Name, spec.Run), Want: "names of letters, digits, and - _ . inside"}
	}
	limits, err := s.limits(spec)
	if err != nil {
		return nil, err
	}
	if spec.Dir, err = filepath.Abs(spec.Dir); err != nil {
		return nil, fmt.Errorf("docker: create %s: %w", spec.Name, err)
	}
	i := &Instance{s: s, spec: spec, limits: limits}
	if i.user, err = userOf(spec); err != nil {
		return nil, fmt.Errorf("docker: create %s: %w", spec.Name, err)
	}
	if err := s.recordEngine(); err != nil {
		return nil, fmt.Errorf("docker: create %s: %w", spec.Name, err)
	}
	if err := s.instances.Admit(i.name(), i); err != nil {
		return nil, fmt.Errorf("docker: create %s: %w", spec.Name, err)
	}
	if err := i.make(ctx); err != nil {
		s.instances.Forget(i.name(), i)
		return nil, err
	}
	return i, nil
}

// make makes the instance's sandbox. On failure it leaves nothing behind.
func (i *Instance) make(ctx context.Context) (err error) {
	if i.spec.Image != "" {
		if i.base, err = i.s.images.byReference(ctx, i.spec.Image); err != nil {
			return err
		}
		i.image = i.base
	}
	if err := i.makeSandbox(ctx); err != nil {
		if i.sandbox != "" {
			err = errors.Join(err, i.s.removeContainer(context.WithoutCancel(ctx), i.sandbox))
		}
		return err
	}
	i.vantage = i.vantageOf(0)
	return nil
}

// name is unique in this substrate, whose instances may belong to several runs.
func (i *Instance) name() string { return i.spec.Run + "/" + i.spec.Name }

// removals is how many instances Close removes at a time.
const removals = 8

// Close removes all instances, and the images that it made and nobody else uses.
func (s *Substrate) Close(ctx context.Context) error {
	s.creating.Lock()
	defer s.creating.Unlock()
	err := s.instances.Close(ctx)
	if err == nil {
		err = s.images.removeMade(ctx)
	}
	if err == nil {
		err = s.eraseEngine()
	}
	if err == nil {
		err = s.api.Close()
	}
	return err
}
