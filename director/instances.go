package director

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/document"
)

// instances returns all instances with their health and counts. It includes changes that
// are not in force yet.
func (d *Director) instances() []client.Instance {
	counts := map[string]meter.Instance{}
	for _, in := range d.meter.Instances() {
		counts[in.Name] = in
	}
	list := d.roster.list()
	all := make([]client.Instance, 0, len(list))
	for _, in := range list {
		all = append(all, d.view(in, counts[in.Name]))
	}
	return all
}

// types returns the highest IDs, what draining waits for, and the counts of the types.
func (d *Director) types() []client.Type {
	all, configured := []client.Type{}, d.config.Load().Types
	for _, t := range d.meter.Types() {
		if t.Name == "" { // messages without a type
			continue
		}
		of := client.Type{Name: t.Name, HighestID: highestOf(configured, t.Name), Refused: map[string]uint64{}}
		if c := typeOf(configured, t.Name); c != nil {
			of.Drain = c.Drain
		}
		for cause, n := range t.Failures {
			if n > 0 {
				of.Refused[cause] = n
			}
		}
		all = append(all, of)
	}
	return all
}

// healthOf returns the health of an instance, and why it is away.
func (d *Director) healthOf(name string) (health, reason string) {
	if reason = d.watch.reason(name); reason != "" {
		return "away", reason
	}
	if busy := d.busy.Load(); busy != nil && (*busy)[name] {
		return "full", ""
	}
	return "up", ""
}

// view returns one instance with its health and counts.
func (d *Director) view(in vitrine.Instance, c meter.Instance) client.Instance {
	out := client.Instance{Instance: in}
	out.Health, out.Reason = d.healthOf(in.Name)
	out.Messages, out.Transactions, out.Ended, out.InFlight, out.Proceeding = c.Messages, c.Begun, c.Ended, c.InFlight, c.Proceeding
	out.Dialogs, out.DialogsBegun, out.Quiet = c.Dialogs, c.DialogsBegun, c.Quiet
	out.Latencies = c.Latencies
	if n := c.Latencies.Count(); n > 0 {
		out.Latency = c.Latency.Seconds() / float64(n)
	}
	out.Leased = d.roster.leasedWeight(&in)
	ty := d.config.Load().Type(in.Type)
	if ty != nil {
		if p, ok := gtpc.PrefixOf(ty.Number, in.ID); ok {
			out.TEIDPrefix, out.Sequence = p.TEID, p.Sequence
		}
	}
	t := d.epochs.View().Table.ByName(in.Name)
	if t == nil {
		return out
	}
	now := d.now()
	d.publishing.Lock()
	since, drains := d.drains[in.Name]
	over := drains && now-since >= d.epochs.Transition() && now >= d.blind && !d.epochs.Straggling(now)
	d.publishing.Unlock()
	byTransactions := ty == nil || ty.Drain == DrainTransactions && ty.Protocol != S1AP
	out.Idle = t.State == vitrine.Draining && in.State == vitrine.Draining && over && out.InFlight == 0 &&
		(byTransactions || out.Quiet) // quiet, because the last BYE may be retransmitted
	out.Drained = out.Idle && (byTransactions || out.Dialogs <= 0)
	return out
}

func (d *Director) oneInstance(name string) (client.Instance, error) {
	for _, in := range d.roster.list() {
		if in.Name != name {
			continue
		}
		return d.view(in, d.meter.Instance(in.Type, name)), nil
	}
	return client.Instance{}, &Absent{name}
}

func (d *Director) getInstance(w http.ResponseWriter, r *http.Request) {
	in, err := d.oneInstance(r.PathValue("name"))
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, in)
}

// acceptsChanges refuses changes during a hand-over, because the new process would not see
// them.
func (d *Director) acceptsChanges(w http.ResponseWriter) bool {
	d.publishing.Lock()
	defer d.publishing.Unlock()
	if d.frozen {
		fail(w, errFrozen)
		return false
	}
	return true
}

// A givenInstance is an instance in a request.
type givenInstance struct {
	vitrine.Instance
	Weight *float64 `json:"weight"` // nil: 1
}

// complete checks an instance from REST, and returns it with its defaults.
func (d *Director) complete(given *givenInstance, name string) (vitrine.Instance, error) {
	in := given.Instance
	bad := func(found, want string) (vitrine.Instance, error) {
		return in, &vitrine.BadInput{File: "instance " + name, Found: found, Want: want}
	}
	in.Name, in.Weight = cmp.Or(in.Name, name), 1
	if in.Name != name {
		return bad("the body names "+in.Name, "want the name of the path, or none")
	}
	if !document.IsName(name) {
		return bad("invalid name", document.NameWant)
	}
	if err := checkRegion(name, in.Region); err != nil {
		return in, err
	}
	c := d.config.Load()
	if c.Type(in.Type) == nil {
		return bad("no type "+in.Type, "want one of the configuration file's")
	}
	if !isPlace(in.Address) {
		return bad("address "+in.Address.String(), placeWant)
	}
	if given.Weight != nil {
		in.Weight = *given.Weight
	}
	if err := checkWeight(name, in.Weight); err != nil {
		return in, err
	}
	return in, c.checkSender(&in)
}

// checkSender checks that there is a listener to send from to an instance, whose type c has.
func (c *Config) checkSender(in *vitrine.Instance) error {
	if c.Listen.sendsTo(c.Type(in.Type), in.Address.Addr()) {
		return nil
	}
	return &vitrine.BadInput{File: "instance " + in.Name, Found: "address " + in.Address.String(), Want: senderWant}
}

// checkRegion checks the region of an instance from REST; empty: none.
func checkRegion(name, region string) error {
	if region == "" || document.IsName(region) {
		return nil
	}
	return &vitrine.BadInput{File: "instance " + name, Found: "region " + region, Want: document.NameWant}
}

// checkWeight checks the weight of an instance from REST.
func checkWeight(name string, weight float64) error {
	if weight > 0 && !math.IsInf(weight, 1) {
		return nil
	}
	return &vitrine.BadInput{File: "instance " + name, Found: fmt.Sprintf("weight %v", weight), Want: "want a number above 0; to send it nothing new, set its state to draining"}
}

func (d *Director) putInstance(w http.ResponseWriter, r *http.Request) {
	var given givenInstance
	if !d.acceptsChanges(w) || !read(w, r, &given) {
		return
	}
	name := r.PathValue("name")
	in, err := d.complete(&given, name)
	if err != nil {
		fail(w, err)
		return
	}
	status := http.StatusOK
	err = d.roster.change(func(draft *draft) error {
		if _, ok := draft.instances[name]; !ok {
			status = http.StatusCreated
		}
		draft.instances[name] = in
		return nil
	})
	d.answerInstance(w, status, name, err)
}

func (d *Director) answerInstance(w http.ResponseWriter, status int, name string, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	in, err := d.oneInstance(name)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, status, in)
}

func (d *Director) putInstances(w http.ResponseWriter, r *http.Request) {
	var all []givenInstance
	if !d.acceptsChanges(w) || !read(w, r, &all) {
		return
	}
	err := d.roster.change(func(draft *draft) error {
		draft.instances = make(map[string]vitrine.Instance, len(all))
		for i := range all {
			in, err := d.complete(&all[i], all[i].Name)
			if err != nil {
				return err
			}
			if _, ok := draft.instances[in.Name]; ok {
				return &vitrine.BadInput{File: "instance " + in.Name, Found: "duplicate name"}
			}
			draft.instances[in.Name] = in
		}
		return nil
	})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, d.instances())
}

// An alteredInstance is the answer to a change. It has no counts, because an orchestrator that changes
// thousands of weights a minute does not need them.
type alteredInstance struct {
	vitrine.Instance
	Health string `json:"health"`
	Reason string `json:"reason,omitempty"`
}

func (d *Director) patchInstance(w http.ResponseWriter, r *http.Request) {
	var c client.Change
	if !d.acceptsChanges(w) || !read(w, r, &c) {
		return
	}
	in, err := d.roster.alter(r.PathValue("name"), c)
	if err != nil {
		fail(w, err)
		return
	}
	health, reason := d.healthOf(in.Name)
	answer(w, http.StatusOK, alteredInstance{in, health, reason})
}

func (d *Director) patchInstances(w http.ResponseWriter, r *http.Request) {
	var c map[string]client.Change
	if !d.acceptsChanges(w) || !read(w, r, &c) {
		return
	}
	if _, err := d.roster.alterAll(c); err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]int{"changed": len(c)})
}

func (d *Director) deleteInstance(w http.ResponseWriter, r *http.Request) {
	if !d.acceptsChanges(w) {
		return
	}
	name := r.PathValue("name")
	err := d.roster.change(func(draft *draft) error {
		if _, ok := draft.instances[name]; !ok {
			return &Absent{name}
		}
		delete(draft.instances, name)
		return nil
	})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]string{"removed": name})
}

func (d *Director) getRules(w http.ResponseWriter, _ *http.Request) {
	rules, _ := d.roster.rulesAndRooms()
	all := make([]client.Rule, len(rules))
	for i, r := range rules {
		all[i] = client.Rule(r)
	}
	answer(w, http.StatusOK, all)
}

func (d *Director) putRules(w http.ResponseWriter, r *http.Request) {
	var all []client.Rule
	if !d.acceptsChanges(w) || !read(w, r, &all) {
		return
	}
	rules := make([]Rule, len(all))
	for i := range all {
		rules[i] = Rule(all[i])
	}
	if err := d.changeRules(rules); err != nil {
		fail(w, err)
		return
	}
	d.getRules(w, r)
}

// changeRules puts rules from REST in force.
func (d *Director) changeRules(rules []Rule) error {
	d.reloads.serial.Lock() // not during a reload, nor while a hand-over freezes changes
	defer d.reloads.serial.Unlock()
	c := d.config.Load()
	for _, e := range validateRules(rules, c.Types) {
		return &vitrine.BadInput{File: fmt.Sprintf("rule %d", e.rule+1), Found: e.found, Want: e.want}
	}
	if _, err := d.prepareRules(c, rules); err != nil {
		return &vitrine.BadInput{File: "rules", Found: err.Error()}
	}
	err := d.roster.edit(func(draft *draft) error {
		draft.rules = rules
		return nil
	})
	if err != nil {
		return err
	}
	d.publishing.Lock()
	defer d.publishing.Unlock()
	d.state.Rules = rules
	d.save()
	return d.setRules(c, rules)
}

func (d *Director) getRooms(w http.ResponseWriter, _ *http.Request) {
	_, rooms := d.roster.rulesAndRooms()
	if rooms == nil {
		rooms = []table.Room{}
	}
	answer(w, http.StatusOK, rooms)
}

// A givenRoom is a room in a request.
type givenRoom struct {
	Type   string   `json:"type"`
	Region string   `json:"region"`
	Share  *float64 `json:"share"` // nil: left out, which is refused
}

// rooms checks rooms from REST.
func (c *Config) rooms(given []givenRoom) ([]table.Room, error) {
	bad := func(found, want string) ([]table.Room, error) {
		return nil, &vitrine.BadInput{File: "rooms", Found: found, Want: want}
	}
	rooms := make([]table.Room, 0, len(given))
	for _, g := range given {
		switch {
		case c.Type(g.Type) == nil:
			return bad("no type "+g.Type, "want one of the configuration file's")
		case g.Share == nil:
			return bad("no share", "want 0 to 1, the share of its own traffic that the region keeps")
		case *g.Share < 0 || *g.Share > 1:
			return bad("a share outside 0 to 1", "")
		case !slices.ContainsFunc(c.Regions, func(r Region) bool { return r.Name == g.Region }):
			return bad("no region "+g.Region, "want one of those under regions in the configuration file")
		case slices.ContainsFunc(rooms, func(r table.Room) bool { return r.Type == g.Type && r.Region == g.Region }):
			return bad("duplicate region "+g.Region+" of type "+g.Type, "give it one share")
		}
		rooms = append(rooms, table.Room{Type: g.Type, Region: g.Region, Share: *g.Share})
	}
	return rooms, nil
}

func (d *Director) putRooms(w http.ResponseWriter, r *http.Request) {
	var given []givenRoom
	if !d.acceptsChanges(w) || !read(w, r, &given) {
		return
	}
	err := d.roster.edit(func(draft *draft) (err error) {
		draft.rooms, err = d.config.Load().rooms(given)
		return err
	})
	if err != nil {
		fail(w, err)
		return
	}
	d.getRooms(w, r)
}
