// Package substrate is the contract of a place where instances run. Each kind of place
// (process, docker, ...) is one folder below this one and passes the suite in
// substratetest.
package substrate

import (
	"context"
	"time"

	"vitrine"
)

// A Spec describes one instance to make.
type Spec struct {
	Run       string        // the run's label; everything made for the instance carries it, and cleaning selects by it
	Name      string        // "sprout-1"; unique in the run
	Component string        // "sprout"
	Image     string        // image reference; empty: the substrate builds one from the program, or needs none
	VCPUs     float64       // CPU quota; 0: none
	Memory    int64         // memory limit in bytes; 0: none
	CPUs      []int         // CPUs the instance may run on; empty: any
	CFSPeriod time.Duration // of the quota; 0: DefaultCFSPeriod
	Dir       string        // the instance's own folder on the host, for logs and scratch; must exist
	Idle      bool          // gets only CPU time that no other instance wants; only processes in cgroups obey it

	// User is the user that commands run as, USER or USER:GROUP, by name or number; empty:
	// the substrate's own. On the host it is a user of the host, in an image one of the image.
	User string
	// AllowPrivilegeEscalation lets commands gain privileges by programs with the setuid bit
	// or file capabilities, as in Kubernetes. A virtual machine's own kernel always does.
	AllowPrivilegeEscalation bool
}

// DefaultCFSPeriod is shorter than 100 ms, the default of Docker and the kernel. With 100
// ms, a small instance that has spent its quota would stall for most of that time.
const DefaultCFSPeriod = 20 * time.Millisecond

// A Substrate makes instances. Its methods may be called from any goroutine.
type Substrate interface {
	// Create makes a place for the instance. Its limits hold and its network namespace
	// exists (where the substrate has them), so that a fabric can wire it; nothing of the
	// function runs yet. On failure, Create leaves nothing behind. The error for what this
	// host cannot do is a *vitrine.Unsupported.
	Create(ctx context.Context, spec Spec) (Instance, error)

	// Close removes everything that was made through this Substrate. It may be called more
	// than once, and after instances were removed.
	Close(ctx context.Context) error
}

// An Instance is one place made by Create. Its life cycle is Create -> (fabric attaches) ->
// Start -> Stop -> Start ... -> Remove.
type Instance interface {
	// NetNS returns the path of the network namespace; empty: the instance shares the
	// host's.
	NetNS() string

	// Start runs the command in the place and returns when it runs (not when it is ready).
	// Standard output and error are appended to Dir/log. Starting a running instance is an
	// error. The context bounds the start, not the life of the process.
	Start(ctx context.Context, command vitrine.Command) (Process, error)

	// Run runs a command in the place to its end, before Start or beside the process that
	// Start started: install scripts, readiness checks. The error of a failed command
	// carries the last lines of its output.
	Run(ctx context.Context, command vitrine.Command) error

	// Stop ends the process that Start started: SIGTERM, then SIGKILL after grace. Except in
	// a virtual machine, it also ends what commands of Run left. The place and its wiring
	// stay. Stopping an instance that does not run is no error.
	Stop(ctx context.Context, grace time.Duration) error

	// Remove ends everything in the place and removes it. Idempotent.
	Remove(ctx context.Context) error

	// Vantage returns where to read the instance's use. It is fixed from Start to Stop.
	Vantage() vitrine.Vantage
}

// A Process is a command that Start started.
type Process interface {
	// Done is closed when the process has ended, by itself or by Stop.
	Done() <-chan struct{}
	// Err returns how the process ended, once Done is closed: nil for exit status 0.
	Err() error
}

// A Timed is a Process whose CPU time is known after its end.
type Timed interface {
	// Spent returns the CPU time of the command and of the descendants that it waited for, once
	// Done is closed.
	Spent() time.Duration
}

// An Owner is an Instance whose commands may run as another user than this process.
type Owner interface {
	// Own gives a file or folder of the host to that user, but not the folder's content.
	Own(path string) error
}

// Own gives a file or folder of the host to the user that the instance's commands run as.
func Own(in Instance, path string) error {
	if o, ok := in.(Owner); ok {
		return o.Own(path)
	}
	return nil
}

// A Restorer is an Instance whose copy of its image outlives Stop, with the changes that commands
// made.
type Restorer interface {
	// Restore undoes the changes. It is called after Stop. Start does not call it, because its
	// time is no part of a boot.
	Restore() error
}

// Restore undoes the changes that commands made to an instance's copy of its image, if the instance
// is a Restorer.
func Restore(in Instance) error {
	if r, ok := in.(Restorer); ok {
		return r.Restore()
	}
	return nil
}

// A Verbose is an Instance with other logs than Dir/log.
type Verbose interface {
	// Logs returns the files that grow with what the instance prints. They need not exist.
	Logs() []string
}

// Logs returns the logs of an instance besides Dir/log.
func Logs(in Instance) []string {
	if v, ok := in.(Verbose); ok {
		return v.Logs()
	}
	return nil
}

// An Accelerated is a Substrate whose instances may be virtual machines.
type Accelerated interface {
	// Accelerator returns "kvm", or "tcg" (emulation); empty: the instances are not virtual
	// machines. It may boot a machine to find out, and may first have to build what it
	// boots.
	Accelerator(ctx context.Context) (string, error)
}

// AcceleratorOf returns the accelerator of a substrate's virtual machines; empty: it has
// none.
func AcceleratorOf(ctx context.Context, s Substrate) (string, error) {
	if a, ok := s.(Accelerated); ok {
		return a.Accelerator(ctx)
	}
	return "", nil
}

// A Confined is a Substrate that isolates its instances from the host as far as the host
// can.
type Confined interface {
	// Unconfined returns what this host lacks to isolate the instances.
	Unconfined(ctx context.Context) ([]*vitrine.Unsupported, error)
}

// Unconfined returns what the host lacks to isolate a substrate's instances from the host.
func Unconfined(ctx context.Context, s Substrate) ([]*vitrine.Unsupported, error) {
	if c, ok := s.(Confined); ok {
		return c.Unconfined(ctx)
	}
	return nil, nil
}

// A Booter is a Substrate whose instances boot before any command runs in them.
type Booter interface {
	// BootsUnlimited reports whether they boot without their CPU quota, which then holds
	// from their first command on.
	BootsUnlimited() bool
}

// BootsUnlimited reports whether a substrate's instances boot without their CPU quota.
func BootsUnlimited(s Substrate) bool {
	b, ok := s.(Booter)
	return ok && b.BootsUnlimited()
}

// A Stayer is a Substrate whose instances boot once: they stay up when the process that Start started
// is stopped.
type Stayer interface {
	StaysUp() bool
}

// StaysUp reports whether a substrate's instances boot only at their first Start or Run.
func StaysUp(s Substrate) bool {
	u, ok := s.(Stayer)
	return ok && u.StaysUp()
}

// A Guest is a Substrate whose instances may have their own kernel, and so their own clock
// and CPUs. Callers also ask the zero value.
type Guest interface {
	OwnKernel() bool
}

// OwnKernel reports whether a substrate's instances have their own kernel.
func OwnKernel(s Substrate) bool {
	g, ok := s.(Guest)
	return ok && g.OwnKernel()
}
