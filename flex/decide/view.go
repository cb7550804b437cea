package decide

import "time"

// A Type is an aggregate type as its file declares it.
type Type struct {
	Name      string
	Min       int // instances that start, warm or are active, at least 1
	Max       int // instances, also those that drain; Stopping and Failed ones do not count
	Objective Objective
	Flavors   []Flavor      // at least one, with different names
	Headroom  float64       // share of the capacity to keep free, 0 <= Headroom < 1
	Stable    time.Duration // the rate must have been low this long before an instance is drained; 0: DefaultStable
	Boot      time.Duration // how long a start takes, until starts have been seen; 0: DefaultBoot
	Polling   bool          // its members poll, so that their CPU use says nothing of their load
}

// The values of a Type that leaves the field at zero.
const (
	DefaultStable = 60 * time.Second
	DefaultBoot   = 10 * time.Second
)

// An Objective is the service that a type owes. A zero field promises nothing.
type Objective struct {
	P99     time.Duration // 99th percentile of latency, at most
	Success float64       // success ratio, at least; 0..1
}

// A Flavor is a size of instance.
type Flavor struct {
	Name     string
	Capacity float64 // transactions/s that one instance carries with 90% probability within the objective
	CPUs     float64 // of the host, for all members of one instance; 0: not limited, not counted
	Memory   int64   // bytes, for all members of one instance; 0: not limited, not counted
}

// A State is where an instance is in its life.
type State uint8

// The states of an instance. Only an Active one gets new transactions. Starting and
// Warming ones are on the way to that and count as capacity. The caller must show an
// instance as Starting from the second after the Start action on, and must turn one
// that does not get ready in time into Failed.
const (
	Starting State = iota // its members start
	Warming               // its members are ready and get little or no traffic yet
	Active
	Draining // gets no new transactions
	Drained  // nothing is in flight: it may be stopped
	Failed   // a member died or did not get ready
	Stopping // a Stop action is under way
)

// An Instance is one instance of a type.
type Instance struct {
	Name   string
	Type   string
	Flavor string
	State  State
	Since  time.Time // when it entered the State

	// Known says that the figures below are fresh. They matter when it is Active.
	Known    bool
	Rate     float64       // transactions/s that it was sent
	InFlight int           // transactions
	Dialogs  int           // dialogs, of a type that is drained by dialogs
	P99      time.Duration // latency, over the last seconds; 0: no transaction ended
	Success  float64       // success ratio, over the last seconds; 1 when no transaction ended
	CPU      float64       // use of the CPUs given, 0..1, of its busiest member
}

// A TypeView is a type and what arrives for it now.
type TypeView struct {
	Type
	Known   bool    // Rate and Refused are fresh
	Rate    float64 // transactions/s that arrive, those refused or lost included
	Refused float64 // transactions/s that were refused or lost for lack of an instance
	Leased  bool    // redline measures an instance of it: the type is not scaled
}

// Limits bound all types together. A zero field is no limit.
type Limits struct {
	Instances int     // of any state
	CPUs      float64 // of the host, for instances of any state
	Memory    int64   // bytes of the host, for instances of any state
	Starting  int     // instances that start or warm at the same time: starts slow each other down
}

// A Booted is a start that went well since the last View.
type Booted struct {
	Type string
	Took time.Duration // from the Start action to Active
}

// A Died is an instance that failed since the last View: it did not get ready, or a
// member ended.
type Died struct {
	Type   string
	Lived  time.Duration // as Active; 0: it never was
	Reason string        // for people
}

// A View is everything that a decision depends on, except Memory.
type View struct {
	Now       time.Time // the wall clock; it may jump
	Types     []TypeView
	Instances []Instance // of all types, in any order
	Limits    Limits
	Booted    []Booted
	Died      []Died
}

// A Kind is what an Action does.
type Kind uint8

// The kinds of Action.
const (
	Start  Kind = iota // an instance of Type and Flavor
	Drain              // Instance: no new transactions
	Resume             // Instance, which is draining: active again, which is faster than a start
	Stop               // Instance, which is Drained or Failed
	Hold               // nothing is done for Type although something would be; repeated each second while it lasts
)

func (k Kind) String() string {
	return [...]string{"start", "drain", "resume", "stop", "hold"}[k]
}

// A Cause is why an Action is taken, for programs: it stays the same while the
// figures in the reason change.
type Cause string

// The causes of actions.
const (
	CauseMinimum   Cause = "minimum"   // fewer instances than the type's minimum
	CauseMaximum   Cause = "maximum"   // Drain: more instances than the type's maximum. Hold: the maximum is reached
	CauseRate      Cause = "rate"      // the rate now needs more instances
	CauseForecast  Cause = "forecast"  // the rate expected when a start would be over needs more instances
	CauseProfile   Cause = "profile"   // the objective is broken at a rate that the profile says is carried
	CauseIdle      Cause = "idle"      // the rate has been low for the stable time
	CauseDrained   Cause = "drained"   // nothing is in flight any more
	CauseFailed    Cause = "failed"    // a member died or did not get ready
	CauseMetrics   Cause = "metrics"   // Hold: rates or latencies are not known
	CauseLease     Cause = "lease"     // Hold: redline measures the type
	CauseBackOff   Cause = "back-off"  // Hold: instances died again and again
	CauseTotal     Cause = "total"     // Hold: the limit of all types together is reached
	CauseObjective Cause = "objective" // Hold: the objective is broken, so nothing is drained
	CauseCPU       Cause = "cpu"       // Hold: one instance less would leave too little CPU
	CauseStarts    Cause = "starts"    // Hold: enough instances start at the same time
	CauseElsewhere Cause = "elsewhere" // Hold: more instances did not mend the objective: something else is wrong
)

// An Action is one thing to do, and why.
type Action struct {
	Kind     Kind
	Type     string
	Flavor   string // Start
	Instance string // Drain, Resume, Stop
	Cause    Cause
	Reason   string // for people, with the figures
}
