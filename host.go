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

// NewCheck is OK with the detail, unless the error says what is missing.
func NewCheck(name, detail string, err error) Check {
	if err != nil {
		return Check{Name: name, Missing: err.Error()}
	}
	return Check{Name: name, OK: true, Detail: detail}
}

// A Checker says what its back end can do on this host.
type Checker interface {
	Check(ctx context.Context) []Check
}

// A Cleaner removes what dead runs left on this host. Whatever carries one of our
// labels, and whose run is no longer alive, is removed, whichever process made
// it. What this product did not make is never touched.
type Cleaner interface {
	// Clean lists what it removed, also when it fails halfway.
	Clean(ctx context.Context) (removed []string, err error)
}

// A HostReading is what the host did during a trial, held against what it did when
// it was idle. Speeds are those of the run's slowest CPU, as a share of its idle
// speed: at 0.5 a fixed amount of work took twice as long. 0: not read.
type HostReading struct {
	Before, During, After float64
	Steal                 float64  // the largest share of a CPU that the hypervisor took
	Other                 *float64 `json:",omitempty"` // CPUs of the run that other processes used; nil: not known
}
