// Package docker runs instances as containers of the Docker Engine on this
// host, through the engine's API.
//
// An instance is two containers, as a pod is in Kubernetes: a sandbox, which
// holds the network and PID namespaces and sleeps, and the function's own,
// which joins them. So a fabric can wire an instance before anything runs in
// it, the wiring outlives stop and start, and the function's process is an
// ordinary one that SIGTERM ends, not process 1.
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

// The labels of everything that is made here.
const (
	labelRun       = "vitrine.run"  // the run's id
	labelRoot      = "vitrine.root" // where the run is known to be alive
	labelInstance  = "vitrine.instance"
	labelComponent = "vitrine.component"
)

// Config is the part servers.docker of a deployment.
type Config struct {
	// Host is the engine's socket; empty: unix:///var/run/docker.sock. It must
	// be an engine of this very host.
	Host string `yaml:"host" json:"host,omitempty"`

	// Network is how instances are networked: namespace, one each; host, for
	// when this user may not enter namespaces and so no fabric could wire them;
	// auto or empty: whichever this user can.
	Network string `yaml:"network" json:"network,omitempty" jsonschema:"enum=auto,enum=namespace,enum=host"`

	// Runtime is the OCI runtime of instances, by the name that the engine has for
	// it: runc, crun, runsc (gVisor), kata or io.containerd.kata.v2. The default is
	// the engine's.
	Runtime string `yaml:"runtime,omitempty" json:"runtime,omitempty"`

	// Mounts are shown to every instance, besides its own folder.
	Mounts []Mount `yaml:"mounts" json:"mounts,omitempty"`

	Folder string `yaml:"-" json:"-"` // relative sources of mounts are below it: the deployment's
	Runs   string `yaml:"-" json:"-"` // root of internal/runstate; empty: runstate.DefaultRoot()

	Run *runstate.Run `yaml:"-" json:"-"` // has a record of the images that Load gives the engine; nil: none has
}

// A Mount shows a file or folder of the host inside the instances.
type Mount struct {
	Source   string `yaml:"source" json:"source"`
	Target   string `yaml:"target" json:"target"`                         // absolute
	Writable bool   `yaml:"writable,omitempty" json:"writable,omitempty"` // else it is read-only there
}

// A Substrate makes instances as containers.
type Substrate struct {
	config Config
	*engine
	images     gallery
	pause      static
	namespaces bool // instances have network namespaces of their own

	creating  sync.RWMutex // Create holds it to read, Close to write
	instances substrate.Roster
}

var (
	_ substrate.Substrate = (*Substrate)(nil)
	_ vitrine.Cleaner     = (*Substrate)(nil)
	_ vitrine.Checker     = (*Substrate)(nil)
)

// New connects to the engine. One that is not running, that this user may not
// use, or that has not the runtime, is a *vitrine.Unsupported.
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
	if err := e.checkRuntime(config.Runtime); err != nil {
		return nil, errors.Join(err, e.api.Close())
	}
	return &Substrate{
		config: config, engine: e, pause: pause, namespaces: namespaces,
		images:    gallery{e: e, root: config.Runs, run: config.Run, have: make(map[string]picture)},
		instances: substrate.Roster{Limit: removals},
	}, nil
}

// Create makes the instance's sandbox, of which the network namespace has
// nothing but lo, and sees to it that the instance's image is there. An image
// that is neither local nor to be pulled is a *vitrine.BadInput.
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
	if err := s.instances.Admit(i.name(), i); err != nil {
		return nil, fmt.Errorf("docker: create %s: %w", spec.Name, err)
	}
	if err := i.make(ctx); err != nil {
		s.instances.Forget(i.name(), i)
		return nil, err
	}
	return i, nil
}

// make makes the instance's sandbox. When it fails it leaves nothing.
func (i *Instance) make(ctx context.Context) (err error) {
	if i.spec.Image != "" {
		if i.image, err = i.s.images.byReference(ctx, i.spec.Image); err != nil {
			return err
		}
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

// name tells instances of this substrate apart: they may be of several runs.
func (i *Instance) name() string { return i.spec.Run + "/" + i.spec.Name }

// removals is how many instances Close removes at a time.
const removals = 8

// Close removes all instances, and the images made here that nobody else uses.
func (s *Substrate) Close(ctx context.Context) error {
	s.creating.Lock()
	defer s.creating.Unlock()
	err := s.instances.Close(ctx)
	if err == nil {
		err = s.images.removeMade(ctx)
	}
	if err == nil {
		err = s.api.Close()
	}
	return err
}
