package flex

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/unit"
)

// servicePrefix distinguishes the units of services from the units of instances.
const servicePrefix = "service-"

// A service is the state of a config.Service.
type service struct {
	unit     unit.Unit
	pause    time.Duration // last pause before a restart; 0: it has run for longestPause
	again    time.Time     // time of the restart; zero: none is planned
	begun    bool          // it has been ready at least once
	outdated bool          // it was started with another version of the file
}

// Pauses before an ended service is restarted. They double from firstPause to longestPause.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// runServices keeps the services running. It reports whether every service of the file has been
// ready at least once: before that, no instance may start. A service that ends later is
// restarted without effect on the instances, also after a restart of the orchestrator: instances that run
// show that all services have been ready.
func (o *Orchestrator) runServices(ctx context.Context, now time.Time, units map[string]unit.Unit) bool {
	ctx, cancel := context.WithTimeout(ctx, callLimit) // for all services, because a runner that hangs does so for each one
	defer cancel()
	o.adoptMembers(now, units)
	all := o.wantedServices()
	o.dropServices(ctx, all, units)
	for i := range all {
		begun := o.runService(ctx, now, &all[i], units)
		if !begun && i < len(o.File.Services) {
			o.awaitService(all[i].Name)
			return false // the next service may depend on this one
		}
	}
	return true
}

// runService keeps a service running. It reports whether the service has been ready at least
// once.
func (o *Orchestrator) runService(ctx context.Context, now time.Time, c *config.Service, units map[string]unit.Unit) bool {
	s := o.services[c.Name]
	if s == nil {
		s = &service{}
		o.services[c.Name] = s
	}
	u, there := units[servicePrefix+c.Name]
	if !there && s.unit.State == unit.Ready { // its holder has ended: in the next one, services come first again
		s.begun = false
	}
	s.begun = s.begun || len(o.instances) > 0
	s.unit = u
	switch {
	case !there && (s.again.IsZero() || !now.Before(s.again)):
		o.startService(ctx, c, s)
	case !there:
	case u.State == unit.Failed:
		o.serviceFailed(ctx, c, s, now)
	case u.State == unit.Ready:
		if s.pause > 0 && u.Age > longestPause.Seconds() {
			s.pause = 0
		}
		s.begun = true
	}
	o.compareService(c, s)
	return s.begun
}

// awaitService says in the status why nothing is decided: a service has not been ready yet.
func (o *Orchestrator) awaitService(name string) {
	clear(o.why)
	for _, t := range o.Types {
		o.why[t.Name] = []string{fmt.Sprintf("%s: service: service %s has not been ready yet, so no instance starts", decide.Hold, name)}
	}
}

// compareService reports a service that an earlier orchestrator started with another version of the file.
// The service keeps running, because a restart would interrupt it.
func (o *Orchestrator) compareService(c *config.Service, s *service) {
	was := s.outdated
	s.outdated = s.unit.State == unit.Ready && s.unit.Digest != "" && s.unit.Digest != o.serviceOrder(c).Digest()
	if s.outdated && !was {
		o.events.add(Event{Kind: EventService, Instance: c.Name, Reason: "it was started with another version of the file; to start it with this version, end its process or use vitrine flex stop"})
	}
}

// serviceOrder returns the order of a service.
func (o *Orchestrator) serviceOrder(c *config.Service) unit.Order {
	return unit.Order{
		Name: servicePrefix + c.Name, Folder: o.File.Resolve("."), Command: c.Command, Environment: c.Environment,
		Ready: c.Ready, Deadline: config.DefaultStartDeadline,
	}
}

func (o *Orchestrator) startService(ctx context.Context, c *config.Service, s *service) {
	s.again = time.Time{}
	err := o.Runner.Start(ctx, o.serviceOrder(c))
	reason := "started: " + strings.Join(c.Command, " ")
	if err != nil {
		reason = "it cannot be started: " + err.Error()
	}
	o.events.add(Event{Kind: EventService, Instance: c.Name, Reason: reason})
}

// serviceFailed removes a failed service, and plans its restart after a pause. The unit stays
// listed as failed until it is gone, so each step removes it again, in case an earlier call failed.
func (o *Orchestrator) serviceFailed(ctx context.Context, c *config.Service, s *service, now time.Time) {
	if s.again.IsZero() {
		s.pause = min(max(2*s.pause, firstPause), longestPause)
		s.again = now.Add(s.pause)
		o.events.add(Event{Kind: EventService, Instance: c.Name, Reason: fmt.Sprintf("it ended and is started again in %s: %s", s.pause, s.unit.Reason)})
	}
	if err := o.Runner.Remove(ctx, servicePrefix+c.Name); err != nil {
		o.Log.Warn("remove a service", "service", c.Name, "error", err)
	}
}

// dropServices stops services that are not wanted any more.
func (o *Orchestrator) dropServices(ctx context.Context, wanted []config.Service, units map[string]unit.Unit) {
	for _, name := range slices.Sorted(maps.Keys(units)) {
		short, is := strings.CutPrefix(name, servicePrefix)
		known := slices.ContainsFunc(wanted, func(c config.Service) bool { return c.Name == short })
		if u := units[name]; !is || u.Type != "" || known || u.State == unit.Removing {
			continue
		}
		o.events.add(Event{Kind: EventService, Instance: short, Reason: "it is stopped: the file or the store's load does not need it any more"})
		if err := o.Runner.Remove(ctx, name); err != nil {
			o.Log.Warn("remove a service", "service", short, "error", err)
		}
	}
}
