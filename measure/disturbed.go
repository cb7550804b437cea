package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"vitrine"
	"vitrine/testbed/quiet"
)

// A Disturbance is the reading of the host during a stream. The zero value means that
// the host was not read.
type Disturbance struct {
	host *vitrine.HostReading
	why  string // empty: the stream was not disturbed
}

// Mark adds the reading to the stream's outcome. A disturbed stream is invalid.
func (d Disturbance) Mark(o *vitrine.Outcome) {
	if d.host != nil {
		quiet.Mark(o, *d.host, d.why)
	}
}

// MarkEnded makes an outcome invalid if something that its stream needs has ended, such as a process
// of the fabric. Its lost packets then show nothing about the network. ended may be nil.
func MarkEnded(o *vitrine.Outcome, ended error) {
	if ended != nil {
		o.Valid, o.Reason = false, strings.Join(strings.Fields(ended.Error()), " ")
	}
}

// Watched measures one stream while the stage's watch reads the host.
//
// Watched does not judge the CPU time of other processes. On a host without other work, round
// trips of 10,000 packets a second over a bridge count as 0.05 to 0.10 CPUs of other processes,
// and the limit is 0.1. The cause is unknown.
func (s *Stage) Watched(ctx context.Context, measure func() error) (d Disturbance, err error) {
	if s.Watch == nil {
		return d, measure()
	}
	watch, err := s.Watch(ctx)
	if err != nil {
		return d, fmt.Errorf("watch the host: %w", err)
	}
	err = measure()
	_, _, ended := watch.End(context.WithoutCancel(ctx))
	if err := errors.Join(err, ended); err != nil {
		return d, err
	}
	host, why := watch.Judge(math.NaN())
	return Disturbance{&host, why}, nil
}
