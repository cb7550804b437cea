package director

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/directortest"
	steering "vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/wire/gtpc"
)

// TestPeersOfTheFile checks that gtpc.peers is effective and that a reload changes it.
func TestPeersOfTheFile(t *testing.T) {
	file := strings.Replace(both, "transition: 2s\n", "transition: 2s\ngtpc: {restart_counter: 3, peers: [NETWORK]}\n", 1)
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), strings.Replace(file, "NETWORK", "127.0.9.0/24", 1)))
	to := net.UDPAddrFromAddrPort(r.protocols[1].Addresses()[0])
	listed, other := newAgent(t, "127.0.9.9"), newAgent(t, "127.0.8.8")
	echo := func(a agent) {
		t.Helper()
		if _, err := a.WriteTo(gtpc.AppendEchoRequest(nil, 1, 1), to); err != nil {
			t.Fatal(err)
		}
	}
	dropped := func(want uint64) {
		t.Helper()
		until(t, "a stranger's message is dropped", func() bool { return r.meter.Drops(GTPC)["stranger"] == want })
	}
	echo(other)
	dropped(1)
	echo(listed)
	if got := listed.receive(); got[1] != byte(gtpc.EchoResponse) {
		t.Errorf("got answer %x, want an Echo Response", got)
	}
	x, err := r.client.Explain(t.Context(), client.Question{Message: gtpc.AppendEchoRequest(nil, 1, 1), From: "127.0.8.8:2123"})
	if err != nil || !strings.Contains(strings.Join(x.Steps, "\n"), "gtpc.peers") {
		t.Errorf("%+v, %v", x, err)
	}
	// An instance may send too, but this TEID is unknown.
	lost := gtpc.End(gtpc.AppendHeader(nil, gtpc.CreateBearerRequest, 99, 1), 0)
	x, err = r.client.Explain(t.Context(), client.Question{Message: lost, From: "127.0.0.9:15062"})
	if err != nil || !strings.Contains(strings.Join(x.Steps, "\n"), "from nobody") {
		t.Errorf("%+v, %v", x, err)
	}
	create := gtpc.AppendDigits(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 1), gtpc.IMSI, "001010000000001")
	for address, want := range map[string]string{"127.0.9.9": "gw-1", "10.9.9.9": ""} {
		b := gtpc.AppendFTEID(bytes.Clone(create), 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 7, V4: netip.MustParseAddr(address)})
		x, err = r.client.Explain(t.Context(), client.Question{Message: gtpc.End(b, 0), From: "127.0.9.9:2123"})
		if err != nil || x.Instance != want || strings.Contains(strings.Join(x.Steps, "\n"), "not in gtpc.peers") != (want == "") {
			t.Errorf("an F-TEID with address %s: got %+v, %v, want instance %q", address, x, err, want)
		}
	}
	write(t, r.options.Path, strings.Replace(file, "NETWORK", "127.0.8.0/24", 1))
	if err := r.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	echo(other)
	if got := other.receive(); got[1] != byte(gtpc.EchoResponse) {
		t.Errorf("got answer %x, want an Echo Response", got)
	}
	echo(listed)
	dropped(2)
}

// TestSessionsOfTheFile checks that memory.sessions bounds the TEIDs that the director remembers.
func TestSessionsOfTheFile(t *testing.T) {
	instance := directortest.Answer(t, "127.0.0.1:0", func(message []byte) []byte {
		var m gtpc.Message
		if _, err := m.Parse(message); err != nil {
			return nil
		}
		v, _ := m.Find(gtpc.FTEID, 0)
		f, _ := gtpc.ParseFTEID(v)
		return gtpc.End(gtpc.AppendCause(gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, f.TEID, m.Sequence), gtpc.RequestAccepted), 0)
	})
	file := strings.Replace(both, "127.0.0.9:15062", instance, 1) + "memory: {sessions: 16, exchanges: 64}\n"
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), file))
	to, peer := net.UDPAddrFromAddrPort(r.protocols[1].Addresses()[0]), newAgent(t, "127.0.9.9")
	for i := range uint32(17) {
		b := gtpc.AppendDigits(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, i+1), gtpc.IMSI, "001010000000001")
		b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 1000 + i, V4: netip.MustParseAddr("127.0.9.9")})
		if _, err := peer.WriteTo(gtpc.End(b, 0), to); err != nil {
			t.Fatal(err)
		}
		peer.receive()
	}
	n, err := r.protocols[1].server.(*steering.Server).Counters()
	if err != nil || n.PeersForgotten == 0 || n.Peers > 16 {
		t.Errorf("got %d TEIDs remembered and %d forgotten, %v, want at most 16 remembered", n.Peers, n.PeersForgotten, err)
	}
}

// TestTooManyInstances checks that the file's check and REST refuse more instances than a type or the
// director can have.
func TestTooManyInstances(t *testing.T) {
	var list strings.Builder
	for i := range 127 {
		fmt.Fprintf(&list, "  - {name: gw-x%d, type: gateway, address: \"127.0.0.9:%d\"}\n", i, 20000+i)
	}
	file := strings.NewReplacer("protocol: gtpc}", "protocol: gtpc, number: 1}", "transition:", list.String()+"transition:").Replace(both)
	if _, err := Load(write(t, filepath.Join(t.TempDir(), "many.yaml"), file)); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "128 instances share the 127 IDs of type gateway") {
		t.Errorf("got error %v", err)
	}
	d := &draft{types: []Type{{Name: "gateway"}}, instances: map[string]vitrine.Instance{}}
	for i := range meter.MaxInstances + 1 {
		name := fmt.Sprint(i)
		d.instances[name] = vitrine.Instance{Name: name, Type: "gateway"}
	}
	if err := d.finish(nil); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "16384 instances: want at most 16383") {
		t.Errorf("got error %v", err)
	}
}

// TestRuleMistakes checks that the file's check finds rules that no message can match.
func TestRuleMistakes(t *testing.T) {
	for rule, want := range map[string]string{
		"{message: create-sesion, type: gateway}":                   `no message "create-sesion": want one of alert-mme, `,
		"{message: modify-bearer, relocation: true, type: gateway}": "relocation: is for rules with message: create-session",
		"{relocation: true, type: gateway}":                         "relocation: is for rules with message: create-session",
	} {
		path := write(t, filepath.Join(t.TempDir(), "bad.yaml"), strings.Replace(both, "{type: gateway}", rule, 1))
		if _, err := Load(path); !vitrine.IsBadInput(err) || !strings.HasPrefix(err.Error(), path+":4:") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", rule, err, want)
		}
	}
}

// TestRuleText checks that explanations show a rule as the file has it, with its number among the rules of
// all protocols. A rule that another change has just removed must not end the explanation.
func TestRuleText(t *testing.T) {
	const relocation = "{message: create-session, relocation: true, type: gateway}"
	d := newDirector(t, strings.Replace(both, "{type: gateway}", relocation+", {type: gateway}", 1))
	for at, want := range []string{"rule 2 matches: " + relocation, "rule 3 matches: {type: gateway}", "the rule that matches is being replaced"} {
		if got := d.matches(GTPC, at); got != want {
			t.Errorf("rule %d: got %s, want %s", at, got, want)
		}
	}
}

func TestPeersMistakes(t *testing.T) {
	for more, want := range map[string]string{
		"gtpc: {peers: []}\n":                        "10:15: gtpc.peers",
		"gtpc: {peers: [127.0.0.1]}\n":               "10:16: gtpc.peers[0] is \"127.0.0.1\": want a network such as 10.3.0.0/16",
		"gtpc: {peers: [10.1.2.3/99]}\n":             "10:16: gtpc.peers[0] is \"10.1.2.3/99\": want a network",
		"gtpc: {peers: [10.3.0.0/16, \"\"]}\n":       `10:29: gtpc.peers[1] is "": want a network`,
		"gtpc: {peers: [\"::ffff:10.3.0.0/112\"]}\n": "10:16: ::ffff:10.3.0.0/112: no packet's address is in it: write it as IPv4",
	} {
		path := write(t, filepath.Join(t.TempDir(), "bad.yaml"), both+more)
		if _, err := Load(path); !vitrine.IsBadInput(err) || !strings.HasPrefix(err.Error(), path+":"+want) {
			t.Errorf("%s: got error %v, want %q", more, err, want)
		}
	}
}
