package decide

import "time"

// A Type is an aggregate type, as declared in the orchestrator's file.
type Type struct {
	Name      string
	Min       int // fewest instances that start, warm or are active; at least 1
	Max       int // most instances, including Draining and Drained ones, without Stopping and Failed ones and without one lost instance: see AwayAfter
	Objective Objective
	Flavors   []Flavor      // at least one, with different names
	Headroom  float64       // share of the capacity to keep free, 0 <= Headroom < 1
	Stable    time.Duration // time of low rate before a drain; 0: DefaultStable
	Boot      time.Duration // expected time from a Start action to Active, until starts have been observed; 0: DefaultBoot
	Polling   bool          // members poll, so their CPU use does not show their load
}

// Defaults for zero fields of a Type.
const (
	DefaultStable = 60 * time.Second
	DefaultBoot   = 10 * time.Second
)

// AwayAfter is how long all directors must have found an Active instance away until it is lost: it counts as no
// capacity. A shorter time may be a restart or a pause.
const AwayAfter = 10 * time.Second

// Window is the time over which P99, Success, Served, Failing and Chance are taken. One bad second shows in them for as long.
const Window = 5 * time.Second

// An Objective is the service level objective of a type. A zero field is no objective.
type Objective struct {
	P99     time.Duration `json:"p99"`     // upper bound on the 99th percentile of latency
	Success float64       `json:"success"` // lower bound on the success ratio, 0..1
}

// A Flavor is a size of instance.
type Flavor struct {
	Name     string
	Capacity float64 // transactions/s that one instance carries with 90% probability within the objective
	CPUs     float64 // host CPUs for all members of one instance; 0: not limited, not counted
	Memory   int64   // bytes for all members of one instance; 0: not limited, not counted
}

// A State is where an instance is in its life.
type State uint8

// The states of an instance. Only Active instances get new transactions. Starting and Warming
// instances count as capacity, because they become Active soon. The caller must list an
// instance as Starting from the second after its Start action on, and as Failed if it does not
// become ready in time.
const (
	Starting State = iota // its members start
	Warming               // its members are ready and get little or no traffic yet
	Active
	Draining // gets no new transactions
	Drained  // nothing is in flight, or the deadline has passed: it may be stopped
	Failed   // a member died or did not become ready
	Stopping // a Stop action is under way
)

// An Instance is one instance of a type.
type Instance struct {
	Name   string
	Type   string
	Flavor string
	State  State
	Since  time.Time // when it entered the State

	// Was is its capacity when its Flavor was last declared; 0: not known. It counts if the Flavor is not
	// declared any more.
	Was float64

	// Away is for how long all directors have found it away and no transaction there has succeeded; 0: it is not away.
	// While a director does not answer, the caller keeps what it knows.
	Away time.Duration

	// Known says that the figures below are fresh. Only those of Active instances are used.
	Known    bool
	Rate     float64       // transactions/s sent to the instance
	InFlight int           // transactions
	Dialogs  int           // dialogs, of a type that is drained by dialogs
	P99      time.Duration // latency, over Window, with the transactions that became late without a response; 0: there were none
	Success  float64       // success ratio, over Window; 1 when no transaction ended
	Served   bool          // a transaction succeeded, within Window
	Failing  bool          // its failed transactions, over Window, are too many for chance: it alone breaks the success ratio of the objective
	CPU      float64       // CPU use of its busiest member, as a share of its limit, 0..1
	CPUKnown bool          // CPU is known
}

// A TypeView is a type with its present load.
type TypeView struct {
	Type
	Known   bool    // Rate and Refused are fresh
	Rate    float64 // arriving transactions/s, including refused and lost ones
	Refused float64 // transactions/s refused or lost for lack of an instance
	Leased  bool    // redline is measuring an instance: do not scale the type, and do not judge its profile
	// Chance says that the type's failed and late transactions, over Window, are too few to prove a broken
	// objective, whatever P99 and Success are.
	Chance bool
}

// Limits bound all types together. A zero field is no limit.
type Limits struct {
	Instances int     // instances in any state
	CPUs      float64 // host CPUs for instances in any state
	Memory    int64   // bytes of host memory for instances in any state
	Starting  int     // instances that start or warm at the same time, because starts slow each other down
}

// A Booted is a start that succeeded since the last View.
type Booted struct {
	Type string
	Took time.Duration // from the Start action to Active
}

// A Died is an instance that failed since the last View: it did not become ready, or a member
// ended.
type Died struct {
	Type   string
	Lived  time.Duration // time since it became Active; 0: it never was
	Reason string        // for people
}

// A View is the input of a decision, apart from Memory.
type View struct {
	Now       time.Time // the wall clock; it may jump
	Types     []TypeView
	Instances []Instance // of all types, in any order
	Limits    Limits
	// StoreAway says that no store answers. Transactions that need one fail early, so a low rate does
	// not show a low load, and a broken objective does not show a wrong profile.
	StoreAway bool
	// StoreSlow says that a store is past its threshold. Transactions that wait for it are late, so a
	// broken objective does not show a wrong profile.
	StoreSlow bool
	Booted    []Booted
	Died      []Died
}

// A Kind is the kind of an Action.
type Kind uint8

// The kinds of Action.
const (
	Start  Kind = iota // start an instance of Type and Flavor
	Drain              // send no new transactions to Instance
	Resume             // make a draining Instance active again, which is faster than a start
	Stop               // stop a Drained or Failed Instance
	Hold               // do not scale Type although the load asks for it; repeated each second while it lasts
)

func (k Kind) String() string {
	return [...]string{"start", "drain", "resume", "stop", "hold"}[k]
}

// A Cause is the machine-readable reason of an Action. It has no figures, so it stays the same
// while the figures in Reason change.
type Cause string

// The causes of actions.
const (
	CauseMinimum   Cause = "minimum"   // fewer instances than the type's minimum
	CauseMaximum   Cause = "maximum"   // Drain: more instances than the type's maximum. Hold: the maximum is reached, or the directors have no free ID
	CauseRate      Cause = "rate"      // the rate now needs more instances
	CauseForecast  Cause = "forecast"  // the rate forecast for the end of a start needs more instances
	CauseProfile   Cause = "profile"   // the objective is broken at a rate below the capacity in the profile
	CauseIdle      Cause = "idle"      // the rate has been low for the stable time
	CauseDrained   Cause = "drained"   // the drain has ended
	CauseFailed    Cause = "failed"    // a member died or did not become ready
	CauseAway      Cause = "away"      // Drain: all directors find it away. Hold: no active instance shows that the directors reach the type
	CauseMetrics   Cause = "metrics"   // Hold: rates or latencies are not known
	CauseStore     Cause = "store"     // Hold: no store answers, so nothing is drained; or the objective is broken while a store is slow
	CauseLease     Cause = "lease"     // Hold: redline is measuring an instance of the type
	CauseBackOff   Cause = "back-off"  // Hold: instances died again and again
	CauseTotal     Cause = "total"     // Hold: the limit of all types together is reached
	CauseObjective Cause = "objective" // Hold: the objective is broken, so nothing is drained
	CauseCPU       Cause = "cpu"       // Hold: one instance less would leave too little CPU
	CauseStarts    Cause = "starts"    // Hold: the limit of concurrent starts is reached
	CauseElsewhere Cause = "elsewhere" // Hold: the objective is broken although the capacity suffices: more instances would not help
)

// An Action is one step of a decision, with its reason.
type Action struct {
	Kind     Kind
	Type     string
	Flavor   string // of Start
	Instance string // of Drain, Resume and Stop
	Cause    Cause
	Reason   string // for people, with the figures
}
