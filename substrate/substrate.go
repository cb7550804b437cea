// Package substrate says what a place where instances run must offer. Each
// kind of place (process, docker, ...) is one folder below this one and passes
// the suite in substratetest.
package substrate

import (
	"context"
	"time"

	"vitrine"
)

// A Spec is one instance to make.
type Spec struct {
	Run       string        // the run's label: what is made carries it, and cleaning goes by it
	Name      string        // "sprout-1"; unique in the run
	Component string        // "sprout"
	Image     string        // image reference; empty: the substrate makes one from the program, or needs none
	VCPUs     float64       // CPU quota; 0: none
	Memory    int64         // memory limit in bytes; 0: none
	CPUs      []int         // CPUs it may run on; empty: any
	CFSPeriod time.Duration // of the quota; 0: DefaultCFSPeriod
	Idle      bool          // it gets only CPU time that nobody else wants; process only
	Dir       string        // the instance's own folder on the host: logs and scratch; exists
}

// DefaultCFSPeriod is short so that a small instance is not stalled for most
// of 100 ms, Docker's and the kernel's default, once its quota is spent.
const DefaultCFSPeriod = 20 * time.Millisecond

// A Substrate makes instances. Its methods may be called from any goroutine.
type Substrate interface {
	// Create makes a place for the instance: its limits hold and its network
	// namespace exists (where the substrate has them), so that a fabric can wire
	// it; nothing of the function runs yet. When it fails it leaves nothing behind.
	// What this host cannot do is a *vitrine.Unsupported.
	Create(ctx context.Context, spec Spec) (Instance, error)

	// Close removes everything that was made through this value. It may be
	// called more than once, and after instances were removed.
	Close(ctx context.Context) error
}

// An Instance is one place made by Create.
// Create -> (fabric attaches) -> Start -> Stop -> Start ... -> Remove.
type Instance interface {
	// NetNS is the path of its network namespace; empty when it shares the host's.
	NetNS() string

	// Start runs the command in the place and returns once it runs (not once it
	// is ready). Standard output and error are appended to Dir/log. Starting a
	// running instance is an error. The context bounds the starting, not the
	// life of what was started.
	Start(ctx context.Context, command vitrine.Command) (Process, error)

	// Run runs a command in the place to its end, beside what Start started or
	// before it: install scripts, readiness checks. A failure's error carries the
	// last lines of its output.
	Run(ctx context.Context, command vitrine.Command) error

	// Stop ends what Start started: SIGTERM, SIGKILL after grace. The place and
	// its wiring stay. Stopping what does not run is no error.
	Stop(ctx context.Context, grace time.Duration) error

	// Remove ends everything in the place and removes it. Idempotent.
	Remove(ctx context.Context) error

	// Vantage says where its use can be read. Fixed from Start to Stop.
	Vantage() vitrine.Vantage
}

// A Process is what Start started.
type Process interface {
	// Done is closed when it has ended, by itself or by Stop.
	Done() <-chan struct{}
	// Err is how it ended, once Done is closed: nil for exit status 0.
	Err() error
}

// An Accelerated is a Substrate whose instances may be virtual machines.
type Accelerated interface {
	// Accelerator is what they run with here: "kvm", or "tcg", which emulates; empty:
	// they are none.
	// The answer comes from booting, and what boots may have to be built first.
	Accelerator(ctx context.Context) (string, error)
}

// AcceleratorOf is what a substrate's virtual machines run with; empty: it has none.
func AcceleratorOf(ctx context.Context, s Substrate) (string, error) {
	if a, ok := s.(Accelerated); ok {
		return a.Accelerator(ctx)
	}
	return "", nil
}

// A Booter is a Substrate whose instances boot before anything runs in them.
type Booter interface {
	// BootsUnlimited says that they do so without their CPU quota, which holds from
	// their first command on.
	BootsUnlimited() bool
}

// BootsUnlimited says whether a substrate's instances boot without their CPU quota.
func BootsUnlimited(s Substrate) bool {
	b, ok := s.(Booter)
	return ok && b.BootsUnlimited()
}

// A Guest is a Substrate whose instances may have a kernel of their own, and so
// a clock and CPUs of their own. It is asked of the zero value, too.
type Guest interface {
	OwnKernel() bool
}

// OwnKernel says whether a substrate's instances have a kernel of their own.
func OwnKernel(s Substrate) bool {
	g, ok := s.(Guest)
	return ok && g.OwnKernel()
}

// An Outranker is a Substrate whose instances may share a CPU with an idle
// instance (Spec.Idle) of the host.
type Outranker interface {
	// OutranksIdle says that an idle instance takes no CPU time from them.
	OutranksIdle() bool
}

// OutranksIdle says whether a substrate's instances lose no CPU time to idle ones.
func OutranksIdle(s Substrate) bool {
	o, ok := s.(Outranker)
	return ok && o.OutranksIdle()
}
