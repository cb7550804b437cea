package vitrine

import "context"

// A Check is one line of `vitrine doctor`: one thing that a back end needs, and
// whether this host offers it.
type Check struct {
	Name    string `json:"name"`              // "process: CPU quotas"
	OK      bool   `json:"ok"`                //
	Detail  string `json:"detail"`            // version, path, cgroup mode
	Missing string `json:"missing,omitempty"` // what is missing, when not OK
}

// NewCheck returns a Check that is OK with the detail, or that is not OK and has
// the text of err in Missing.
func NewCheck(name, detail string, err error) Check {
	if err != nil {
		return Check{Name: name, Missing: err.Error()}
	}
	return Check{Name: name, OK: true, Detail: detail}
}

// A Checker reports what its back end can do on this host.
type Checker interface {
	Check(ctx context.Context) []Check
}

// A Cleaner removes what dead runs left on this host: everything with the label
// of a run that is no longer alive, whichever process made it. It never touches
// anything that this product did not make.
type Cleaner interface {
	// Clean returns what it removed, even when it fails halfway.
	Clean(ctx context.Context) (removed []string, err error)
}

// A HostReading compares the host during a trial with the idle host. Speeds are
// those of the run's slowest CPU, as a share of its idle speed: at 0.5 a fixed
// amount of work took twice as long. 0: not read.
type HostReading struct {
	Before, During, After float64
	Steal                 float64  // the largest share of a CPU that the hypervisor took
	Other                 *float64 `json:",omitempty"` // CPUs of the run that other processes used; nil: not known
}
