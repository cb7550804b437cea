package director

import (
	"cmp"
	"fmt"
	"net/http"

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

// types returns the highest IDs and the counts of the types.
func (d *Director) types() []client.Type {
	all, configured := []client.Type{}, d.config.Load().Types
	for _, t := range d.meter.Types() {
		if t.Name == "" { // messages without a type
			continue
		}
		of := client.Type{Name: t.Name, HighestID: highestOf(configured, t.Name), Refused: map[string]uint64{}}
		for cause, n := range t.Failures {
			if n > 0 {
				of.Refused[cause] = n
			}
		}
		all = append(all, of)
	}
	return all
}

// healthOf returns one instance with its health, without counts.
func (d *Director) healthOf(in vitrine.Instance) client.Instance {
	out := client.Instance{Instance: in, Health: "up", Reason: d.watch.reason(in.Name)}
	if out.Reason != "" {
		out.Health = "away"
	} else if busy := d.busy.Load(); busy != nil && (*busy)[in.Name] {
		out.Health = "full"
	}
	return out
}

// view returns one instance with its health and counts.
func (d *Director) view(in vitrine.Instance, c meter.Instance) client.Instance {
	out := d.healthOf(in)
	out.Messages, out.Transactions, out.Ended, out.InFlight, out.Proceeding = c.Messages, c.Begun, c.Ended, c.InFlight, c.Proceeding
	out.Dialogs, out.DialogsBegun, out.Quiet = int64(c.DialogsBegun)-int64(c.DialogsEnded), c.DialogsBegun, c.Quiet
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

// complete checks an instance from REST and fills in its defaults.
func (d *Director) complete(in *vitrine.Instance, name string) error {
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "instance " + name, Found: found, Want: want}
	}
	if in.Name == "" {
		in.Name = name
	}
	if in.Name != name {
		return bad("the body names "+in.Name, "want the name of the path, or none")
	}
	if !document.IsName(name) {
		return bad("invalid name", document.NameWant)
	}
	if err := checkRegion(name, in.Region); err != nil {
		return err
	}
	c := d.config.Load()
	if c.Type(in.Type) == nil {
		return bad("no type "+in.Type, "want one of the configuration file's")
	}
	if !isPlace(in.Address) {
		return bad("address "+in.Address.String(), placeWant)
	}
	in.Weight = cmp.Or(in.Weight, 1)
	return c.checkSender(in)
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

func (d *Director) putInstance(w http.ResponseWriter, r *http.Request) {
	var in vitrine.Instance
	if !d.acceptsChanges(w) || !read(w, r, &in) {
		return
	}
	name := r.PathValue("name")
	if err := d.complete(&in, name); err != nil {
		fail(w, err)
		return
	}
	status := http.StatusOK
	err := d.roster.change(func(draft *draft) error {
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
	var all []vitrine.Instance
	if !d.acceptsChanges(w) || !read(w, r, &all) {
		return
	}
	err := d.roster.change(func(draft *draft) error {
		draft.instances = make(map[string]vitrine.Instance, len(all))
		for i := range all {
			if err := d.complete(&all[i], all[i].Name); err != nil {
				return err
			}
			if _, ok := draft.instances[all[i].Name]; ok {
				return &vitrine.BadInput{File: "instance " + all[i].Name, Found: "duplicate name"}
			}
			draft.instances[all[i].Name] = all[i]
		}
		return nil
	})
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, d.instances())
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
	// Leave out the counts: an orchestrator that changes thousands of weights a minute
	// does not need them.
	answer(w, http.StatusOK, d.healthOf(in))
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

func (d *Director) putRooms(w http.ResponseWriter, r *http.Request) {
	var rooms []table.Room
	if !d.acceptsChanges(w) || !read(w, r, &rooms) {
		return
	}
	err := d.roster.edit(func(draft *draft) error {
		for _, room := range rooms {
			if d.config.Load().Type(room.Type) == nil {
				return &vitrine.BadInput{File: "rooms", Found: "no type " + room.Type, Want: "want one of the configuration file's"}
			}
			if !(room.Share >= 0 && room.Share <= 1) {
				return &vitrine.BadInput{File: "rooms", Found: "a share outside 0 to 1"}
			}
		}
		draft.rooms = rooms
		return nil
	})
	if err != nil {
		fail(w, err)
		return
	}
	d.getRooms(w, r)
}
