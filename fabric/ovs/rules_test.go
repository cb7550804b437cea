package ovs

import (
	"fmt"
	"slices"
	"testing"

	"vitrine/document"
)

func TestTable(t *testing.T) {
	ports := map[string]port{
		"a": {number: 1, mac: "02:00:00:00:00:01"}, "b": {number: 2, mac: "02:00:00:00:00:02"}, "c": {number: 3, mac: "02:00:00:00:00:03"},
	}
	tests := []struct {
		name  string
		flows bool
		chain []string
		ports []string
		want  []string
	}{
		{name: "normal", ports: []string{"a", "b"}, want: []string{"priority=0,actions=NORMAL"}},
		{name: "flows", flows: true, ports: []string{"a", "b"}, want: []string{
			"priority=0,actions=NORMAL",
			"priority=300,arp,actions=NORMAL",
			"cookie=0x200010002,priority=100,in_port=1,dl_dst=02:00:00:00:00:02,actions=output:2",
			"cookie=0x200020001,priority=100,in_port=2,dl_dst=02:00:00:00:00:01,actions=output:1",
		}},
		{name: "chain", chain: []string{"b", "c", "a"}, ports: []string{"a", "b", "c"}, want: []string{
			"priority=0,actions=NORMAL",
			"priority=300,arp,actions=NORMAL",
			"cookie=0x300020003,priority=200,in_port=2,actions=mod_dl_src:02:00:00:00:00:02,mod_dl_dst:02:00:00:00:00:03,output:3",
			"cookie=0x300030001,priority=200,in_port=3,actions=mod_dl_src:02:00:00:00:00:02,mod_dl_dst:02:00:00:00:00:01,output:1",
		}},
	}
	for _, tt := range tests {
		some := make(map[string]port)
		for _, name := range tt.ports {
			some[name] = ports[name]
		}
		if got := table(some, tt.flows, tt.chain); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestFreeNumber checks that numbers of detached ports are used again, because OpenFlow has only
// 65279.
func TestFreeNumber(t *testing.T) {
	f := &Fabric{ports: make(map[string]port)}
	for _, want := range []int{1, 2, 3} {
		if got := f.freeNumber(); got != want {
			t.Errorf("got port %d, want %d", got, want)
		}
		f.ports[fmt.Sprint(want)] = port{number: want}
	}
	delete(f.ports, "2")
	if got := f.freeNumber(); got != 2 {
		t.Errorf("after port 2 was removed: got port %d", got)
	}
}

func TestCookie(t *testing.T) {
	for _, c := range []cookie{{from: 1, to: 2}, {hop: true, from: 65279, to: 1}, {from: 0, to: 65279}} {
		if got, counts := decodeCookie(c.encode()); !counts || got != c {
			t.Errorf("cookie of %+v decoded as %+v, %v", c, got, counts)
		}
	}
	for _, n := range []uint64{0, 1, 1 << 32, 1 << 34, 1<<34 | 1<<33} {
		if c, counts := decodeCookie(n); counts {
			t.Errorf("cookie %#x decoded as counter %+v, want none", n, c)
		}
	}
}

func TestMask(t *testing.T) {
	for _, tt := range []struct {
		cpus document.CPUs
		want string
	}{{document.CPUs{0}, "0x1"}, {document.CPUs{1, 3}, "0xa"}, {document.CPUs{4}, "0x10"}, {document.CPUs{0, 7, 66}, "0x40000000000000081"}} {
		if got := mask(tt.cpus); got != tt.want {
			t.Errorf("mask of CPUs %v: got %s, want %s", tt.cpus, got, tt.want)
		}
	}
}

const dump = `OFPST_FLOW reply (OF1.4) (xid=0x6):
 cookie=0x0, duration=3.021s, table=0, n_packets=7, n_bytes=294, priority=0 actions=NORMAL
 cookie=0x200010002, duration=3.021s, table=0, n_packets=300, n_bytes=42600, idle_age=1, priority=100,in_port=p1,dl_dst=9a:3d:7e:00:00:02 actions=output:p2
`

func TestParseFlows(t *testing.T) {
	want := []flow{{0, 7, 294}, {0x200010002, 300, 42600}}
	if got, err := parseFlows(dump); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, error %v, want %+v", got, err, want)
	}
	for _, bad := range []string{
		" cookie=0x1, n_packets=x, n_bytes=1", " cookie=0x1, n_packets=1", " cookie=, n_packets=1, n_bytes=1", " cookie=0x1, n_packets=-1, n_bytes=1",
	} {
		if got, err := parseFlows(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func FuzzParseFlows(f *testing.F) {
	f.Add(dump)
	f.Add(" cookie=0x1, n_packets=1, n_bytes=,")
	f.Fuzz(func(t *testing.T, text string) {
		flows, err := parseFlows(text)
		if err != nil && flows != nil {
			t.Errorf("got flows %+v together with error %v", flows, err)
		}
	})
}
