// Package process runs instances as plain processes of this host: no images, no engine,
// nothing to install.
//
// With the privilege, each instance has its own network namespace and cgroup. Without it,
// instances share the host's network. Quotas and memory limits then need a cgroup that the
// session has delegated to the user. Without one, an instance of whole vCPUs is bound to
// its own CPUs.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/internal/thread"
	"vitrine/substrate"
)

// The ways to network an instance.
const (
	NetworkAuto      = "auto"      // a namespace each where the privilege exists
	NetworkNamespace = "namespace" // a namespace each
	NetworkHost      = "host"      // all share the host's
)

// MinMemory is the least memory of an instance, in bytes. No program runs in less, so a smaller number is
// mostly one of MiB.
const MinMemory = 1 << 20

// Config is the section servers.process of a deployment.
type Config struct {
	// Network is how instances are networked: auto, namespace or host; empty: auto.
	Network string `yaml:"network" json:"network,omitempty" jsonschema:"enum=auto,enum=namespace,enum=host"`

	Run     *runstate.Run `yaml:"-" json:"-"` // run of the instances
	Logger  *slog.Logger  `yaml:"-" json:"-"` // nil: no log
	Environ []string      `yaml:"-" json:"-"` // source of the instances' PATH and HOME
}

// A Substrate makes instances as processes.
type Substrate struct {
	config     Config
	groups     *cgroup.Host         // nil: this process may use none
	noGroups   *vitrine.Unsupported // why groups is nil
	namespaces bool                 // instances have network namespaces

	instances substrate.Roster

	mu       sync.Mutex
	bound    map[int]*Instance // CPU -> the instance bound to it, where binding is the quota
	recorded bool              // the run's cgroups are on record
}

var (
	_ substrate.Substrate = (*Substrate)(nil)
	_ vitrine.Cleaner     = (*Substrate)(nil)
	_ vitrine.Checker     = (*Substrate)(nil)
	_ substrate.Instance  = (*Instance)(nil)
	_ substrate.Timed     = (*child)(nil)
)

// New finds out what this process may do on this host. Only a network namespace that
// Config.Network requires and the host cannot give is an error, a *vitrine.Unsupported.
func New(config Config) (*Substrate, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Substrate{config: config, bound: make(map[int]*Instance)}
	var err error
	if s.groups, err = cgroup.Detect(); err != nil && !errors.As(err, &s.noGroups) {
		return nil, fmt.Errorf("looking for cgroups: %w", err)
	}
	switch config.Network {
	case NetworkHost:
	case NetworkNamespace, NetworkAuto, "":
		err := netns.Possible()
		if err != nil && (config.Network == NetworkNamespace || !vitrine.IsUnsupported(err)) {
			return nil, err
		}
		s.namespaces = err == nil
	default:
		return nil, fmt.Errorf("network %q of the process substrate: want auto, namespace or host", config.Network)
	}
	config.Logger.Debug("process substrate", "cgroups", s.groups, "missing", s.noGroups, "namespaces", s.namespaces)
	return s, nil
}

// namePattern allows names that are safe for files, cgroups and namespaces.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// Create makes the instance's cgroup and network namespace, where the host allows them.
func (s *Substrate) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if !namePattern.MatchString(spec.Name) {
		return nil, fmt.Errorf("creating instance %q: not a valid name", spec.Name)
	}
	if spec.Run != s.config.Run.ID {
		return nil, fmt.Errorf("creating instance %s: its run is %q, but the run of this substrate is %q", spec.Name, spec.Run, s.config.Run.ID)
	}
	if spec.CFSPeriod == 0 {
		spec.CFSPeriod = substrate.DefaultCFSPeriod
	}
	account, err := accountOf(spec.User)
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
	}
	in, err := s.admit(spec)
	if err == nil {
		in.account = account
	}
	if err != nil {
		return nil, fmt.Errorf("creating instance %s: %w", spec.Name, err)
	}
	if err := in.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("creating instance %s: %w", spec.Name, err), in.Remove(context.WithoutCancel(ctx)))
	}
	return in, nil
}

// admit reserves the name and, where binding is the quota, the instance's CPUs.
func (s *Substrate) admit(spec substrate.Spec) (*Instance, error) {
	in := &Instance{substrate: s, spec: spec, children: make(map[*child]struct{})}
	if err := s.instances.Admit(spec.Name, in); err != nil {
		return nil, err
	}
	if s.groups != nil || spec.VCPUs <= 0 {
		return in, nil
	}
	cpus, err := s.bind(in)
	if err != nil {
		s.forget(in)
		return nil, err
	}
	in.spec.CPUs = cpus
	return in, nil
}

// bind reserves as many CPUs as the instance has vCPUs, from those that it may run on and
// no other instance is bound to. It is the only way to enforce a quota without cgroups.
func (s *Substrate) bind(in *Instance) ([]int, error) {
	spec := in.spec
	refused := &vitrine.Unsupported{
		What:    fmt.Sprintf("a quota of %v CPUs", spec.VCPUs),
		Missing: s.noGroups.Missing,
		Do:      s.noGroups.Do + "; or use flavors of whole vCPUs, which are bound to their own CPUs",
	}
	whole := int(spec.VCPUs)
	if float64(whole) != spec.VCPUs {
		return nil, refused
	}
	may := spec.CPUs
	if len(may) == 0 {
		var err error
		if may, err = thread.Allowed(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	free := slices.DeleteFunc(slices.Clone(may), func(cpu int) bool { return s.bound[cpu] != nil })
	if len(free) < whole {
		refused.Missing = fmt.Sprintf("%d free CPUs of %v to bind it to, or %s", whole, may, s.noGroups.Missing)
		refused.Do = s.noGroups.Do + "; or reserve more CPUs for the function"
		return nil, refused
	}
	for _, cpu := range free[:whole] {
		s.bound[cpu] = in
	}
	return free[:whole], nil
}

// forget releases the instance's name and CPUs.
func (s *Substrate) forget(in *Instance) {
	s.instances.Forget(in.spec.Name, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.bound, func(_ int, of *Instance) bool { return of == in })
}

// Close removes all instances and the run's cgroup.
func (s *Substrate) Close(ctx context.Context) error {
	err := s.instances.Close(ctx)
	if err == nil && s.groups != nil {
		ctx, cancel := substrate.Ending(ctx)
		defer cancel()
		if err = s.groups.RemoveRun(ctx, s.config.Run.ID); err == nil {
			err = s.config.Run.Erase(groupKind, groupName)
		}
	}
	return err
}

// environment returns the command's variables, plus our PATH and HOME where it sets none.
// Another user has its own HOME.
func (s *Substrate) environment(command vitrine.Command, account *substrate.Account) []string {
	from := s.config.Environ
	if account != nil && account.Home != "" {
		from = append([]string{"HOME=" + account.Home}, from...)
	}
	env := make([]string, 0, len(command.Env)+2)
	for _, name := range []string{"PATH=", "HOME="} {
		has := func(entry string) bool { return strings.HasPrefix(entry, name) }
		if i := slices.IndexFunc(from, has); i >= 0 && !slices.ContainsFunc(command.Env, has) {
			env = append(env, from[i])
		}
	}
	return append(env, command.Env...)
}
