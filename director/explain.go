package director

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/table"
)

// postExplain answers where a message would go. Nothing is sent, counted or
// remembered.
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

// regionName is where a client is; empty: nowhere in particular.
func (d *Director) regionName(a netip.Addr) string {
	c := d.config.Load()
	best, name := -1, ""
	for _, r := range c.Regions {
		for _, n := range r.Networks {
			if n.Contains(a) && n.Bits() > best {
				best, name = n.Bits(), r.Name
			}
		}
	}
	return name
}

// explainPick says what the table makes of a key.
func (d *Director) explainPick(v *table.View, e *client.Explanation, ty table.Type, key uint64, region string) {
	say := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	if region != "" {
		say("the client is in region %s", region)
	}
	for _, c := range v.Table.Choices(ty, key, table.RegionOf(region), v.Health) {
		where := "of all regions"
		if c.Region {
			where = "of region " + region
		}
		t := v.Table.Target(c.Index)
		switch {
		case c.Taken:
			say("choice %d %s, slot %d: instance %s", c.Number, where, c.Slot, t.Name)
		case d.watch.away(t.Name):
			say("choice %d %s, slot %d: instance %s, which is away: %s", c.Number, where, c.Slot, t.Name, d.watch.reason(t.Name))
		default:
			say("choice %d %s, slot %d: instance %s, which is full", c.Number, where, c.Slot, t.Name)
		}
	}
	i, ok := v.Table.Pick(ty, key, table.RegionOf(region), v.Health)
	if !ok {
		say("no instance of type %s is active and up: 503", v.Table.Types()[ty])
		return
	}
	e.Instance, e.Address = v.Table.Instance(i).Name, v.Table.Instance(i).Address.String()
	now := d.now()
	if p := v.Previous(now); p != nil {
		if j, ok := p.Pick(ty, key, table.RegionOf(region), nil); ok && p.Target(j).ID != v.Table.Target(i).ID {
			say("since this director was started amid a transition, the key goes to %s as in epoch %d if it is not known", p.Instance(j).Name, p.Epoch())
		}
	}
	d.publishing.Lock()
	since, first := now-d.state.Changed, d.state.Previous == nil
	d.publishing.Unlock()
	if !first && since < d.epochs.Transition() {
		say("amid a transition, for %.1fs more: a key that a worker saw before the change stays where it was", (d.epochs.Transition() - since).Seconds())
	}
}

// explainMessage says where a message would go: it is handled as if it came,
// but for being sent.
func (d *Director) explainMessage(message []byte, from netip.AddrPort) (client.Explanation, error) {
	if d.gtpc != nil && (d.sip == nil || message[0]>>5 == 2 && !isText(message)) {
		return d.explainGTPC(message, from)
	}
	if d.sip == nil {
		return client.Explanation{}, &vitrine.BadInput{File: "explain", Found: "a message", Want: "this director speaks nothing; give a type and a key"}
	}
	return d.explainSIP(message, from)
}

// isText tells SIP, which begins with a word, from GTP-C, whose second byte is
// the type of the message and whose length follows.
func isText(message []byte) bool {
	for _, c := range message[:min(len(message), 4)] {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

func (d *Director) explainSIP(message []byte, from netip.AddrPort) (client.Explanation, error) {
	v := d.epochs.View()
	e := client.Explanation{Epoch: v.Table.Epoch()}
	say := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	x, err := d.sip.Explain(d.now(), d.meter.Probe(), from, message)
	if err != nil {
		say("it does not parse: %v", err)
		return e, nil
	}
	if !x.Request {
		say("a response goes back by the Via under the director's own")
		if x.Sends {
			e.Address = x.To.String()
		}
		return e, nil
	}
	rules := d.rulesOf(SIP)
	region := ""
	if from.IsValid() {
		region = d.regionName(from.Addr())
	}
	e.Region = region
	switch {
	case x.Outward:
		say("its Route or Path entry, which the director inserted, says that it comes from instance %d of type %s and goes to a client", x.ID, x.Route)
	case x.Route != "":
		say("its Route or Path entry, which the director inserted, names instance %d of type %s", x.ID, x.Route)
		e.Type = x.Route
	case x.Rule < 0:
		say("no rule fits it")
	default:
		say("rule %d fits: %s", x.Rule+1, rules[x.Rule].text())
		e.Type = v.Table.Types()[x.Type]
		say("its key has the hash %016x", x.Key)
		d.explainPick(v, &e, x.Type, x.Key, region)
	}
	d.explainSent(v, &e, x.Sends, x.To, x.Message)
	return e, nil
}

// explainSent says what is sent in the end.
func (d *Director) explainSent(v *table.View, e *client.Explanation, sends bool, to netip.AddrPort, message []byte) {
	if !sends {
		e.Instance, e.Address = "", ""
		e.Steps = append(e.Steps, "nothing is sent")
		return
	}
	line, _, _ := bytes.Cut(message, []byte("\r\n"))
	e.Address = to.String()
	e.Instance = ""
	if !bytes.HasPrefix(line, []byte("SIP/2.0 ")) {
		for i := range int32(v.Table.Len()) {
			if t := v.Table.Target(i); t.Address == to && (e.Type == "" || t.TypeName() == e.Type) {
				e.Instance, e.Type = t.Name, t.TypeName()
				break
			}
		}
	}
	e.Steps = append(e.Steps, fmt.Sprintf("to %s goes: %s", to, line))
}

// rulesOf are the rules of a protocol.
func (d *Director) rulesOf(protocol string) (rules []Rule) {
	c := d.config.Load()
	all, _ := d.roster.rest()
	for _, r := range all {
		if t := c.Type(r.Type); t != nil && t.Protocol == protocol {
			rules = append(rules, r)
		}
	}
	return rules
}

// text writes a rule as the file does.
func (r Rule) text() string {
	var parts []string
	for _, p := range [][2]string{{"method", r.Method}, {"event", r.Event}, {"key", r.Key}, {"message", r.Message}, {"interface", r.Interface}, {"type", r.Type}} {
		if p[1] != "" {
			parts = append(parts, p[0]+": "+p[1])
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (d *Director) explainGTPC(message []byte, from netip.AddrPort) (client.Explanation, error) {
	v := d.epochs.View()
	e := client.Explanation{Epoch: v.Table.Epoch()}
	say := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	x, err := d.gtpc.director.Explain(d.now(), d.meter.Probe(), from, message)
	switch {
	case err != nil:
		say("it does not parse: %v", err)
		return e, nil
	case !x.Initial:
		say("message type %d begins no exchange: it is answered, or goes where the request it belongs to came from", x.Kind)
		return e, nil
	}
	if x.Owner != 0 {
		say("its TEID is that of instance %d of type %s", x.Owner, v.Table.Types()[x.OwnerOf])
	}
	if x.Rule < 0 {
		say("no rule fits message type %d", x.Kind)
		return e, nil
	}
	rules := d.rulesOf(GTPC)
	say("rule %d fits: %s", x.Rule+1, rules[x.Rule].text())
	e.Type = v.Table.Types()[x.Type]
	if x.Session {
		say("its session's key is %016x", x.Key)
	} else {
		say("it carries no session's key; the hash %016x stands for one", x.Key)
	}
	if from.IsValid() {
		e.Region = d.regionName(from.Addr())
	}
	d.explainPick(v, &e, x.Type, x.Key, e.Region)
	switch {
	case x.Peer.IsValid():
		e.Instance, e.Address = "", x.Peer.String()
		say("an instance sends it to a TEID that the peer %s gave", x.Peer)
	case x.Instance != nil:
		e.Instance, e.Address = x.Instance.Name, x.Instance.Address.String()
		say("it goes to %s at %s", e.Instance, e.Address)
	}
	return e, nil
}
