package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Priorities of rules. The switch tries the highest first.
const (
	priorityARP   = 300 // ARP works as usual, whatever the other rules are
	priorityChain = 200
	priorityPair  = 100
	priorityRest  = 0
)

// table returns the bridge's rules in the syntax of ovs-ofctl (ovs-fields(7),
// ovs-actions(7)).
func table(ports map[string]port, flows bool, chain []string) []string {
	rules := []string{fmt.Sprintf("priority=%d,actions=NORMAL", priorityRest)}
	if flows || len(chain) > 0 {
		rules = append(rules, fmt.Sprintf("priority=%d,arp,actions=NORMAL", priorityARP))
	}
	for i := 1; i < len(chain); i++ {
		from, to := ports[chain[i-1]], ports[chain[i]]
		// The source stays the first instance's, whatever the forwarders set it to,
		// so that the last instance can answer the first directly, past the chain.
		rules = append(rules, fmt.Sprintf("cookie=%#x,priority=%d,in_port=%d,actions=mod_dl_src:%s,mod_dl_dst:%s,output:%d",
			cookie{hop: true, from: from.number, to: to.number}.encode(), priorityChain, from.number, ports[chain[0]].mac, to.mac, to.number))
	}
	if !flows {
		return rules
	}
	names := slices.Sorted(maps.Keys(ports))
	for _, a := range names {
		for _, b := range names {
			if a == b {
				continue
			}
			from, to := ports[a], ports[b]
			rules = append(rules, fmt.Sprintf("cookie=%#x,priority=%d,in_port=%d,dl_dst=%s,actions=output:%d",
				cookie{from: from.number, to: to.number}.encode(), priorityPair, from.number, to.mac, to.number))
		}
	}
	return rules
}

// A cookie marks a rule that counts: from which port to which.
type cookie struct {
	hop      bool // the rule is of a chain
	from, to int  // numbers of ports, 16 bits
}

const (
	cookieCounts = 1 << 33
	cookieHop    = 1 << 32
)

func (c cookie) encode() uint64 {
	n := cookieCounts | uint64(c.from)<<16 | uint64(c.to)
	if c.hop {
		n |= cookieHop
	}
	return n
}

// decodeCookie decodes a cookie and reports whether its rule counts.
func decodeCookie(n uint64) (c cookie, counts bool) {
	return cookie{hop: n&cookieHop != 0, from: int(n >> 16 & 0xffff), to: int(n & 0xffff)}, n&^(cookieHop|0xffffffff) == cookieCounts
}

// install replaces the bridge's rules by those for the current ports and chain.
func (f *Fabric) install(ctx context.Context) error {
	f.installing.Lock() // otherwise an older table could be installed last
	defer f.installing.Unlock()
	f.mu.Lock()
	rules := table(f.ports, f.config.Rules == RulesFlows, f.chain)
	f.mu.Unlock()
	if err := f.client.replaceFlows(ctx, f.bridge, rules); err != nil {
		return f.server.explain(err)
	}
	return nil
}

// Counters are the counters of one rule, from one instance to another.
type Counters struct {
	From, To string
	Hop      bool   // the rule is of a chain
	Packets  uint64 // without ARP
	Bytes    uint64 // of frames, without the frame check sequence
}

// Counters returns the counters of each rule, with the names of the instances.
// It waits until the switch has collected them, which takes up to about a
// second. Only the rules of pairs (rules: flows) and of chains count.
func (f *Fabric) Counters(ctx context.Context) ([]Counters, error) {
	f.mu.Lock()
	names := make(map[int]string, len(f.ports))
	for name, p := range f.ports {
		names[p.number] = name
	}
	counting := f.config.Rules == RulesFlows || len(f.chain) > 0
	f.mu.Unlock()
	if !counting {
		return nil, errors.New("the ovs fabric has no counters of pairs of instances with rules: normal; use rules: flows")
	}
	dump, err := f.client.dumpFlows(ctx, f.bridge)
	if err != nil {
		return nil, fmt.Errorf("reading the ovs fabric's counters: %w", f.server.explain(err))
	}
	read, err := parseFlows(dump)
	if err != nil {
		return nil, fmt.Errorf("reading the ovs fabric's counters: %w", err)
	}
	var counters []Counters
	for _, r := range read {
		c, counts := decodeCookie(r.cookie)
		from, to := names[c.from], names[c.to]
		if !counts || from == "" || to == "" {
			continue
		}
		counters = append(counters, Counters{From: from, To: to, Hop: c.hop, Packets: r.packets, Bytes: r.bytes})
	}
	slices.SortFunc(counters, func(a, b Counters) int {
		return slices.Compare([]string{a.From, a.To}, []string{b.From, b.To})
	})
	return counters, nil
}

// A flow is the part of a rule that parseFlows reads.
type flow struct {
	cookie, packets, bytes uint64
}

// parseFlows parses the output of `ovs-ofctl dump-flows`: one line for each
// rule, with its fields as name=value, separated by commas. It skips other
// lines, which belong to the reply itself.
func parseFlows(dump string) ([]flow, error) {
	var flows []flow
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "cookie=") {
			continue
		}
		var f flow
		wanted := map[string]*uint64{"cookie": &f.cookie, "n_packets": &f.packets, "n_bytes": &f.bytes}
		for field := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
			into, is := wanted[name]
			if !is {
				continue
			}
			n, err := strconv.ParseUint(value, 0, 64)
			if err != nil {
				return nil, fmt.Errorf("the rule %q: %s: %w", line, name, err)
			}
			*into = n
			delete(wanted, name)
		}
		if len(wanted) > 0 {
			return nil, fmt.Errorf("the rule %q: it has no %q", line, slices.Sorted(maps.Keys(wanted)))
		}
		flows = append(flows, f)
	}
	return flows, nil
}
