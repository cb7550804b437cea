package director

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"vitrine/director/client"
	"vitrine/director/sip"
	"vitrine/director/table"
)

// openSIP opens or takes over the SIP listeners.
func (d *Director) openSIP(c *Config, inherited []*os.File) (*protocol, error) {
	var listeners []sip.Listener
	for _, text := range c.Listen.SIP {
		l, err := ParseListener(text)
		if err != nil {
			return nil, err
		}
		host := ""
		if c.Listen.advertises(l.Address.Addr()) {
			host = net.JoinHostPort(strings.Trim(c.Listen.Advertise, "[]"), fmt.Sprint(l.Address.Port()))
		}
		listeners = append(listeners, sip.Listener{Stream: l.Network == TCP, Address: l.Address, Host: host})
	}
	d.warnOfFiles(c, openFiles())
	rules, err := d.sipRules(c, d.state.Rules)
	if err != nil {
		return nil, err
	}
	keyring, err := d.keyring(c, *d.keys.Load())
	if err != nil {
		return nil, err
	}
	s, err := sip.Listen(sip.Config{
		Keyring: keyring, Connections: c.Memory.Connections, PerSource: c.Memory.PerSource,
		Listeners: listeners, Workers: c.Workers, Inherited: inherited, Epochs: d.epochs, Rules: rules, Meter: d.meter,
		Keys: c.Memory.Keys, Now: d.now, Log: d.log,
	})
	if err != nil {
		return nil, err
	}
	return &protocol{
		server: s, name: SIP, section: sipSection,
		prepare: func(c *Config, rules []Rule) (func(), error) {
			r, err := d.sipRules(c, rules)
			return func() { s.SetRules(r) }, err
		},
		setKeys: s.SetKeyring,
		collect: func(e emitter) { d.collectSIP(s, e) },
		explain: func(message []byte, from netip.AddrPort) (client.Explanation, error) {
			return d.explainSIP(s, message, from)
		},
	}, nil
}

// sipRules returns the rules for the types that speak SIP.
func (d *Director) sipRules(c *Config, rules []Rule) (*sip.Rules, error) {
	all := sip.RulesConfig{Types: c.typeNames(), Options: map[string]sip.TypeOptions{}, Names: c.Listen.Names, Region: regionFinder(c), Feedback: c.Feedback, Trusted: c.Trusted, Quota: d.quotas[SIP]}
	for i := range c.Types {
		t := &c.Types[i]
		if t.Protocol == SIP {
			gate := c.gate(t)
			if gate != nil {
				all.Overload = d.feedback
			}
			all.Options[t.Name] = sip.TypeOptions{
				Dialogs: t.Drain == DrainDialogs, Stream: t.Transport == TCP, Gate: d.gates[t.Name],
				Provisional: gate != nil && gate.Invite == "provisional",
			}
		}
	}
	for _, r := range rules {
		if t := c.Type(r.Type); t == nil || t.Protocol != SIP {
			continue
		}
		key, err := sip.ParseKey(r.Key)
		if err != nil {
			return nil, err
		}
		all.Rules = append(all.Rules, sip.Rule{Method: r.Method, Event: r.Event, Type: r.Type, Key: key})
	}
	return sip.NewRules(all)
}

// collectSIP sends the counters of SIP.
func (d *Director) collectSIP(s *sip.Server, e emitter) {
	t, err := s.Counters()
	if err != nil {
		d.log.Warn("metrics of SIP", "error", err)
	}
	for what, n := range map[string]uint64{"request": t.Requests, "response": t.Responses, "keepalive": t.KeepAlives, "malformed": t.Malformed} {
		e.count("received_total", receivedHelp, n, "protocol", SIP, "kind", what)
	}
	for what, n := range map[string]uint64{"inward": t.Inward, "outward": t.Outward, "returned": t.Returned, "answered": t.Answered, "absorbed": t.Absorbed, "dropped": t.Dropped} {
		e.count("handled_total", handledHelp, n, "protocol", SIP, "how", what)
	}
	e.count("unsigned_routes_total", "The director's own Route entries that were ignored because they have no valid MAC.", t.Unsigned, "protocol", SIP)
	d.collectDatagrams(e, SIP, t.Datagrams)
	e.gauge("connections", "TCP connections.", float64(t.Streams.Open), "protocol", SIP)
	for cause, n := range map[string]uint64{"total": t.Streams.Refused - t.Streams.Crowded, "source": t.Streams.Crowded, "repeated": t.Streams.Repeated} {
		e.count("connections_refused_total", "TCP connections refused: by the limit of all connections, by that of one source, or because the last connection from the same address and port has not ended.", n, "protocol", SIP, "cause", cause)
	}
}

func (d *Director) explainSIP(s *sip.Server, message []byte, from netip.AddrPort) (client.Explanation, error) {
	v := d.epochs.View()
	e := client.Explanation{Epoch: v.Table.Epoch()}
	step := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	x, err := s.Explain(d.now(), d.meter.Probe(), from, message)
	if err != nil {
		step("the message does not parse: %v", err)
		return e, nil
	}
	if !x.Request {
		step("a response goes back along the Via below the director's own")
		if x.Sends {
			e.Address = x.To.String()
		}
		return e, nil
	}
	region := ""
	if from.IsValid() {
		region = d.regionName(from.Addr())
	}
	e.Region = region
	switch {
	case x.Source:
		step("it comes from the address of instance %d of type %s and goes to a client", x.ID, x.Route)
	case x.Outward:
		step("the director's own Route entry tells that it comes from instance %d of type %s and goes to a client", x.ID, x.Route)
	case x.Route != "":
		step("the director's own Route entry names instance %d of type %s", x.ID, x.Route)
		e.Type = x.Route
	case x.Rule < 0:
		step("no rule matches")
	default:
		step("%s", d.matches(SIP, x.Rule))
		e.Type = v.Table.Types()[x.Type]
		step("its key has the hash %016x", x.Key)
		d.explainPick(v, &e, x.Type, x.Key, region)
	}
	if x.Refused != "" {
		step("%s", x.Refused)
	}
	d.explainSent(v, &e, x.Sends, x.To, x.Message)
	return e, nil
}

// explainSent adds the message that would be sent, and its destination.
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
	e.Steps = append(e.Steps, fmt.Sprintf("sends to %s: %s", to, line))
}
