package director

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/table"
)

// postExplain answers where a message would go. It sends, counts and remembers nothing.
func (d *Director) postExplain(w http.ResponseWriter, r *http.Request) {
	var q client.Question
	if !read(w, r, &q) {
		return
	}
	e, err := d.explain(q)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, e)
}

func (d *Director) explain(q client.Question) (client.Explanation, error) {
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "explain", Found: found, Want: want}
	}
	var from netip.AddrPort
	if q.From != "" {
		var err error
		if from, err = netip.ParseAddrPort(q.From); err != nil {
			return client.Explanation{}, bad("from "+q.From, "want an IP address and a port")
		}
	}
	if len(q.Message) > 0 {
		return d.explainMessage(q.Message, from)
	}
	v := d.epochs.View()
	ty, ok := v.Table.Type(q.Type)
	if !ok {
		return client.Explanation{}, bad("no type "+q.Type, fmt.Sprintf("give a message, or one of the types %v and a key", v.Table.Types()))
	}
	region := q.Region
	if region == "" && from.IsValid() {
		region = d.regionName(from.Addr())
	}
	e := client.Explanation{Epoch: v.Table.Epoch(), Type: q.Type, Region: region}
	e.Steps = append(e.Steps, fmt.Sprintf("key %q has the hash %016x", q.Key, table.Key([]byte(q.Key))))
	d.explainPick(v, &e, ty, table.Key([]byte(q.Key)), region)
	return e, nil
}

// regionName returns the region of a client; empty: none.
func (d *Director) regionName(a netip.Addr) string {
	for _, n := range regionNetworks(d.config.Load()) {
		if n.prefix.Contains(a) {
			return n.name
		}
	}
	return ""
}

// explainPick adds the choices that the table has for a key.
func (d *Director) explainPick(v *table.View, e *client.Explanation, ty table.Type, key uint64, region string) {
	step := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	if region != "" {
		step("the client is in region %s", region)
	}
	if name := v.Table.Types()[ty]; slices.Contains(d.panics(), name) {
		step("type %s is in panic: its instances count as up although checks fail", name)
	}
	for _, c := range v.Table.Choices(ty, key, table.RegionOf(region), v.Health) {
		where := "of all regions"
		if c.Region {
			where = "of region " + region
		}
		t := v.Table.Target(c.Index)
		switch {
		case c.Taken:
			step("choice %d %s, slot %d: instance %s", c.Number, where, c.Slot, t.Name)
		case d.watch.away(t.Name):
			step("choice %d %s, slot %d: instance %s, which is away: %s", c.Number, where, c.Slot, t.Name, d.watch.reason(t.Name))
		default:
			step("choice %d %s, slot %d: instance %s, which is full", c.Number, where, c.Slot, t.Name)
		}
	}
	i, ok := v.Table.Pick(ty, key, table.RegionOf(region), v.Health)
	if !ok {
		step("no instance of type %s is active and up: the director refuses the request", v.Table.Types()[ty])
		return
	}
	e.Instance, e.Address = v.Table.Instance(i).Name, v.Table.Instance(i).Address.String()
	now := d.now()
	if p := v.Previous(now); p != nil {
		if j, ok := p.Pick(ty, key, table.RegionOf(region), nil); ok && p.Target(j).ID != v.Table.Target(i).ID {
			step("this director was started during a transition: an unknown key goes to %s, as in epoch %d", p.Instance(j).Name, p.Epoch())
		}
	}
	d.publishing.Lock()
	since, first := now-d.state.Changed, d.state.Previous == nil
	d.publishing.Unlock()
	if !first && since < d.epochs.Transition() {
		step("in a transition for another %.1fs: a key that a worker saw before the change stays at its instance", (d.epochs.Transition() - since).Seconds())
	}
}

// explainMessage tells where a message would go. It handles the message without sending
// it.
func (d *Director) explainMessage(message []byte, from netip.AddrPort) (client.Explanation, error) {
	name := SIP
	if message[0]>>5 == 2 && !isText(message) {
		name = GTPC
	}
	if isS1AP(message) {
		name = S1AP
	}
	spoken := d.protocols[0] // default if the message's own protocol is not configured
	for _, p := range d.protocols {
		if p.name == name {
			spoken = p
		}
	}
	return spoken.explain(message, from)
}

// isText distinguishes SIP from GTP-C. SIP begins with a word. The second byte of GTP-C
// is the message type, and the length follows.
func isText(message []byte) bool {
	for _, c := range message[:min(len(message), 4)] {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// matches returns the line of an explanation about a rule: its number among all rules, and the rule as in
// the configuration file. at is the rule's index among those of the protocol. The rule may be missing while
// other rules come into force.
func (d *Director) matches(protocol string, at int) string {
	c := d.config.Load()
	all, _ := d.roster.rulesAndRooms()
	for i, r := range all {
		if t := c.Type(r.Type); t == nil || t.Protocol != protocol {
			continue
		}
		if at == 0 {
			return fmt.Sprintf("rule %d matches: %s", i+1, r.text())
		}
		at--
	}
	return "the rule that matches is being replaced"
}

// text returns a rule in the format of the configuration file.
func (r Rule) text() string {
	relocation := ""
	if r.Relocation {
		relocation = "true"
	}
	var parts []string
	for _, p := range [][2]string{
		{"method", r.Method}, {"event", r.Event}, {"key", r.Key}, {"message", r.Message}, {"relocation", relocation},
		{"cause", r.Cause}, {"interface", r.Interface}, {"type", r.Type},
	} {
		if p[1] != "" {
			parts = append(parts, p[0]+": "+p[1])
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
