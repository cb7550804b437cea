package director

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/director/s1ap"
	"vitrine/director/table"
	"vitrine/document"
	wire "vitrine/wire/gtpc"
)

func (c *Config) setDefaults() {
	if c.Workers == 0 {
		c.Workers = min(runtime.GOMAXPROCS(0), 256)
	}
	c.Transition = cmp.Or(c.Transition, Duration(table.Transition))
	c.Memory.Keys = cmp.Or(c.Memory.Keys, 1<<18)
	c.Memory.Transactions = cmp.Or(c.Memory.Transactions, 1<<18)
	c.Memory.Connections = cmp.Or(c.Memory.Connections, 10_000)
	c.Memory.Sources = cmp.Or(c.Memory.Sources, 1<<16)
	c.Memory.Sessions = cmp.Or(c.Memory.Sessions, 1<<20)
	c.Memory.Exchanges = cmp.Or(c.Memory.Exchanges, 1<<18)
	for _, q := range []*Quota{c.Quota.SIP, c.Quota.GTPC, c.Quota.S1AP} {
		if q != nil {
			q.Burst = cmp.Or(q.Burst, max(q.Rate, 1))
		}
	}
	c.Health.Every = cmp.Or(c.Health.Every, Duration(time.Second))
	c.Health.Timeout = cmp.Or(c.Health.Timeout, c.Health.Every)
	c.Health.SIP = cmp.Or(c.Health.SIP, "options")
	c.Health.GTPC = cmp.Or(c.Health.GTPC, "echo")
	c.Health.S1AP = cmp.Or(c.Health.S1AP, "tcp")
	c.Health.Fail = cmp.Or(c.Health.Fail, 3)
	c.Health.Rise = cmp.Or(c.Health.Rise, 2)
	c.Keys.setDefaults(c.Transition)
	c.GTPC.PeerPort = cmp.Or(c.GTPC.PeerPort, gtpc.Port)
	c.S1AP.setDefaults()
	if c.State == "" {
		c.State = strings.TrimSuffix(filepath.Base(c.file.Path), filepath.Ext(c.file.Path)) + ".state"
	}
	for i := range c.Types {
		c.Types[i].Drain = cmp.Or(c.Types[i].Drain, DrainTransactions)
	}
	for i := range c.Instances {
		c.Instances[i].Weight = cmp.Or(c.Instances[i].Weight, 1)
	}
}

// A validator collects the errors of a configuration file.
type validator struct {
	*Config
	document.Errors
}

// validate finds the errors that the schema cannot find: duplicate names,
// references to unknown names, and addresses that cannot be listened to.
func (c *Config) validate() error {
	v := &validator{c, document.Errors{Node: c.file.Root()}}
	if long := time.Duration(c.Transition); long > meter.MaxLifetime {
		v.Bad(long.String(), fmt.Sprintf("want at most %s: longer transactions cannot be timed", meter.MaxLifetime), "transition")
	}
	if ringing, transition := time.Duration(c.Keys.Ringing), time.Duration(c.Transition); ringing < transition {
		v.Bad(fmt.Sprintf("ringing %s below transition %s", ringing, transition), "the answer to a call that rings longer would be dropped after a change of keys", "keys", "ringing")
	}
	v.types()
	v.overload(c.Overload, "overload")
	for i := range c.Types {
		v.overload(c.Types[i].Overload, "types", i, "overload")
	}
	v.listen()
	v.rules()
	v.instances()
	v.regions()
	v.trusted()
	v.peers()
	v.s1ap()
	v.control()
	if v.Len() == 0 {
		v.senders()
	}
	if v.Len() == 0 {
		v.table()
	}
	return v.Join()
}

// table checks that a table can be made of the instances.
func (c *validator) table() {
	d := new(draft)
	d.apply(c.Config)
	if err := d.finish(nil); err != nil {
		c.Bad(err.Error(), "", "instances")
	}
}

func (c *validator) listen() {
	protocols := map[string]bool{}
	for _, t := range c.Types {
		protocols[t.Protocol] = true
	}
	for _, of := range []struct {
		protocol, example string
		list              []string
	}{
		{SIP, "udp://127.0.0.1:5060", c.Listen.SIP}, {GTPC, "udp://127.0.0.1:2123", c.Listen.GTPC}, {S1AP, "tcp://127.0.0.1:36412", c.Listen.S1AP},
	} {
		protocol, list := of.protocol, of.list
		if protocols[protocol] && len(list) == 0 {
			c.Bad("no listen."+protocol, "a type uses this protocol: give a listening address, such as "+of.example, "listen")
		}
		if !protocols[protocol] && len(list) > 0 {
			c.Bad("listen."+protocol, "no type uses this protocol: remove the addresses, or add a type", "listen", protocol)
		}
		seen := map[string]bool{}
		for i, text := range list {
			l, err := ParseListener(text)
			switch {
			case err != nil:
				c.Bad(err.Error(), "", "listen", protocol, i)
			case protocol == GTPC && l.Network != UDP:
				c.Bad(text, "GTP-C uses UDP only", "listen", protocol, i)
			case protocol == S1AP && l.Network == UDP:
				c.Bad(text, "S1AP uses SCTP, or TCP in its place", "listen", protocol, i)
			case protocol == SIP && l.Network == SCTP:
				c.Bad(text, "SIP uses UDP or TCP here", "listen", protocol, i)
			case l.Address.Addr().IsUnspecified():
				c.Bad(text, "want one of the host's addresses, because messages carry it; list several addresses to listen on several", "listen", protocol, i)
			case seen[text]:
				c.Bad("duplicate address "+text, "", "listen", protocol, i)
			}
			seen[text] = true
		}
	}
	c.advertise()
}

// senders checks that there is a listener to send from to each type and each instance.
func (c *validator) senders() {
	for i := range c.Types {
		t := &c.Types[i]
		if !c.Listen.sendsTo(t, netip.Addr{}) {
			network := cmp.Or(t.Transport, UDP)
			c.Bad("no "+network+":// listener in listen."+t.Protocol, "type "+t.Name+" sends over "+network+": add a listener, or change transport", "types", i, "transport")
		}
	}
	for i, in := range c.Instances {
		if t := c.Type(in.Type); c.Listen.sendsTo(t, netip.Addr{}) && !c.Listen.sendsTo(t, in.Address.Addr()) {
			c.Bad(in.Address.String(), senderWant, "instances", i, "address")
		}
	}
}

func (c *validator) advertise() {
	host := c.Listen.Advertise
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil && strings.ContainsAny(host, " \t\r\n:;,<>[]@/\"") || ip.Zone() != "" {
		c.Bad(fmt.Sprintf("%q", host), "want a host name or an IP address, without a port: each listener has its own", "listen", "advertise")
		return
	}
	addresses, err := addressesOf(c.Listen.SIP)
	if err == nil && host != "" && len(addresses) > 0 && !slices.ContainsFunc(addresses, func(a netip.AddrPort) bool { return c.Listen.advertises(a.Addr()) }) {
		c.Bad(fmt.Sprintf("%q", host), "no SIP listener has this address family", "listen", "advertise")
	}
}

func (c *validator) types() {
	numbers := map[uint8]string{}
	names := map[string]bool{}
	for i, t := range c.Types {
		if names[t.Name] {
			c.Bad("duplicate type "+t.Name, "type names must be unique", "types", i, "name")
		}
		names[t.Name] = true
		if t.Transport == SCTP && t.Protocol != S1AP || t.Transport == UDP && t.Protocol == S1AP {
			c.Bad(t.Transport, "want udp or tcp for SIP, and tcp or sctp for S1AP", "types", i, "transport")
		}
		if t.Spread && (t.Protocol != S1AP || t.Drain == DrainDialogs) {
			c.Bad("spread", "only types of protocol s1ap have it, with drain: transaction", "types", i, "spread")
		}
		if t.Number > 0 {
			if t.Protocol != GTPC {
				c.Bad("a number", "only types of protocol gtpc have one", "types", i, "number")
			} else if other := numbers[t.Number]; other != "" {
				c.Bad(fmt.Sprintf("%d", t.Number), "type "+other+" has it already", "types", i, "number")
			}
			numbers[t.Number] = t.Name
		}
	}
}

// overload checks the bounds of a gate's rate. path leads to the gate's options.
func (c *validator) overload(o *Overload, path ...any) {
	if o == nil || o.Max == 0 {
		return
	}
	if o.Min > o.Max {
		c.Bad(fmt.Sprintf("min %g above max %g", o.Min, o.Max), "want min at most max: the gate moves its rate between them", append(path, "min")...)
	}
	if o.Initial > o.Max {
		c.Bad(fmt.Sprintf("initial %g above max %g", o.Initial, o.Max), "want initial at most max", append(path, "initial")...)
	}
}

func (c *validator) rules() {
	for _, e := range validateRules(c.Rules, c.Types) {
		c.Bad(e.found, e.want, "rules", e.rule, e.field)
	}
	used := map[string]bool{}
	for _, r := range c.Rules {
		used[r.Type] = true
	}
	for i, t := range c.Types {
		if !used[t.Name] {
			c.Bad("type "+t.Name+" without a rule", "add a rule that sends messages to it", "types", i)
		}
	}
}

// A ruleError describes what is wrong with a rule from the file or from REST.
type ruleError struct {
	rule               int
	field, found, want string
}

func validateRules(rules []Rule, types []Type) (errs []ruleError) {
	for i, r := range rules {
		of := typeOf(types, r.Type)
		if of == nil {
			errs = append(errs, ruleError{i, "type", "no type " + r.Type, "want one of " + strings.Join(names(types), ", ")})
			continue
		}
		for _, f := range []struct {
			name      string
			given     bool
			protocols []string
		}{
			{"method", r.Method != "", []string{SIP}}, {"event", r.Event != "", []string{SIP}}, {"key", r.Key != "", []string{SIP}},
			{"message", r.Message != "", []string{GTPC, S1AP}}, {"cause", r.Cause != "", []string{S1AP}},
			{"interface", r.Interface != "", []string{GTPC}}, {"relocation", r.Relocation, []string{GTPC}},
		} {
			if f.given && !slices.Contains(f.protocols, of.Protocol) {
				want := "is for types of protocol " + strings.Join(f.protocols, " or ") + ", and type " + r.Type + " uses " + of.Protocol
				errs = append(errs, ruleError{i, f.name, f.name, want})
			}
		}
		if known := messageNames(of.Protocol); r.Message != "" && len(known) > 0 && !slices.Contains(known, r.Message) {
			errs = append(errs, ruleError{i, "message", fmt.Sprintf("no message %q", r.Message), "want one of " + strings.Join(known, ", ")})
		}
		if r.Relocation && of.Protocol == GTPC && r.Message != "create-session" {
			errs = append(errs, ruleError{i, "relocation", "relocation", "is for rules with message: create-session"})
		}
	}
	return errs
}

// messageNames returns the names of messages that rules may use; none for SIP, whose methods are
// open.
func messageNames(protocol string) []string {
	switch protocol {
	case GTPC:
		return slices.Sorted(maps.Keys(wire.Types()))
	case S1AP:
		return s1ap.Messages()
	}
	return nil
}

func (c *validator) instances() {
	names := map[string]bool{}
	type place struct{ ty, at string }
	places, ids := map[place]string{}, map[place]string{}
	for i, in := range c.Instances {
		t := c.Type(in.Type)
		if t == nil {
			c.Bad("no type "+in.Type, "want one of "+strings.Join(c.typeNames(), ", "), "instances", i, "type")
			continue
		}
		if names[in.Name] {
			c.Bad("duplicate instance "+in.Name, "instance names must be unique", "instances", i, "name")
		}
		names[in.Name] = true
		p := place{in.Type, in.Address.String()}
		if other := places[p]; other != "" {
			c.Bad(in.Address.String(), "instance "+other+" of type "+in.Type+" has it already", "instances", i, "address")
		}
		places[p] = in.Name
		if !isPlace(in.Address) {
			c.Bad(in.Address.String(), placeWant, "instances", i, "address")
		}
		if in.ID == 0 {
			continue
		}
		if id := (place{idSpace(t), fmt.Sprint(in.ID)}); ids[id] != "" {
			c.Bad(fmt.Sprint(in.ID), "instance "+ids[id]+" has it already: an ID is unique within the type, and with S1AP among all types", "instances", i, "id")
		} else {
			ids[id] = in.Name
		}
		if in.ID > highestID(t) {
			c.Bad(fmt.Sprint(in.ID), fmt.Sprintf("want at most %d, the highest ID of an instance of type %s", highestID(t), t.Name), "instances", i, "id")
		}
	}
}

const (
	placeWant  = "want the address and port where the instance listens: IPv4, or IPv6 without a zone"
	senderWant = "want an address of the IP family of a listener with the type's transport, because the director sends from it"
)

// isPlace reports whether an instance may have an address. IPv4 in IPv6, such as ::ffff:10.0.0.1, is
// not allowed, because a packet's source is never in that form.
func isPlace(a netip.AddrPort) bool {
	ip := a.Addr()
	return ip.IsValid() && a.Port() != 0 && !ip.IsUnspecified() && !ip.Is4In6() && ip.Zone() == ""
}

// idSpace returns the space in which the ID of a type's instance is unique. All types with S1AP
// share one, because the ID is the MME code. No type can have the name of that space.
func idSpace(t *Type) string {
	if t.Protocol == S1AP {
		return "protocol " + S1AP
	}
	return t.Name
}

// highestOf returns highestID of the type with that name; table.MaxID if there is none.
func highestOf(types []Type, name string) uint16 {
	if t := typeOf(types, name); t != nil {
		return highestID(t)
	}
	return table.MaxID
}

// highestID returns the highest ID that an instance of the type may have.
func highestID(t *Type) uint16 {
	switch {
	case t.Protocol == GTPC && t.Number > 0:
		return gtpc.MaxID
	case t.Protocol == S1AP:
		return s1ap.MaxID
	}
	return table.MaxID
}

func (c *validator) regions() {
	networks := map[netip.Prefix]string{}
	names := map[string]bool{}
	for i, r := range c.Regions {
		if names[r.Name] {
			c.Bad("duplicate region "+r.Name, "list all networks of a region in one place", "regions", i, "name")
		}
		names[r.Name] = true
		for j, n := range r.Networks {
			c.network(n, "regions", i, "networks", j)
			if other := networks[n.Masked()]; other != "" {
				c.Bad(n.String(), "region "+other+" has it already", "regions", i, "networks", j)
			}
			networks[n.Masked()] = r.Name
		}
	}
	for i, t := range c.Types {
		rooms := map[string]bool{}
		for j, r := range t.Rooms {
			if !names[r.Region] {
				c.Bad("no region "+r.Region, "want one of those under regions", "types", i, "rooms", j, "region")
			}
			if rooms[r.Region] {
				c.Bad("duplicate region "+r.Region, "give it one share", "types", i, "rooms", j, "region")
			}
			rooms[r.Region] = true
		}
	}
}

func (c *validator) trusted() {
	speaks := false
	for _, t := range c.Types {
		speaks = speaks || t.Protocol == SIP
	}
	if len(c.Trusted) > 0 && !speaks {
		c.Bad("trusted", "no type uses SIP: remove it", "trusted")
	}
	for i, n := range c.Trusted {
		c.network(n, "trusted", i)
		if n.Bits() == 0 {
			c.Bad(n.String(), "anybody could send through the director to any host: list only networks that instances send from", "trusted", i)
		}
	}
}

func (c *validator) peers() {
	for i, n := range c.GTPC.Peers {
		c.network(n, "gtpc", "peers", i)
	}
}

// network checks that a packet's address may be in n. IPv4 addresses are not in the
// IPv4-mapped form.
func (c *validator) network(n netip.Prefix, path ...any) {
	if n.Addr().Is4In6() {
		c.Bad(n.String(), "no packet's address is in it: write it as IPv4, such as 10.3.0.0/16", path...)
	}
}

func (c *validator) control() {
	address, err := netip.ParseAddrPort(c.Listen.Control)
	if err != nil {
		c.Bad(fmt.Sprintf("%q", c.Listen.Control), "want an IP address and a port, such as 127.0.0.1:8090", "listen", "control")
		return
	}
	o := c.Control
	secure := o.Certificate != ""
	if (o.Certificate == "") != (o.Key == "") {
		c.Bad("certificate and key", "give both or neither", "control")
	}
	if o.Clients != "" && !secure {
		c.Bad("clients", "certificates of clients need the director's own certificate and key", "control", "clients")
	}
	if address.Addr().IsLoopback() {
		return
	}
	switch {
	case o.TokenFile == "" && o.Clients == "":
		c.Bad(c.Listen.Control, "beyond loopback the control address needs control.token_file or control.clients", "listen", "control")
	case !secure:
		c.Bad(c.Listen.Control, "beyond loopback the control address needs control.certificate and control.key, or tokens would be sent in clear", "listen", "control")
	}
}
