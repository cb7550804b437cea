package director

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/director/client"
	"vitrine/internal/sctp"
	"vitrine/reference/epc/enb"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

const goodS1AP = `
listen:
  s1ap: ["tcp://127.0.0.1:0"]
  control: 127.0.0.1:0
s1ap: {network: "00101", group: 3, codes: [1, 2], relative_capacity: 9, enodebs: [127.0.0.0/8]}
types:
  - {name: attach-detach, protocol: s1ap}
  - {name: handover-sr, protocol: s1ap}
rules:
  - {message: service-request, type: handover-sr}
  - {type: attach-detach}
instances:
  - {name: a1, id: 1, type: attach-detach, address: "127.0.0.1:15081"}
  - {name: h1, id: 2, type: handover-sr, address: "127.0.0.1:15082"}
health: {s1ap: "off"}
quota: {s1ap: {rate: 5}}
overload: {target: 100ms}
`

func TestBadS1APFiles(t *testing.T) {
	for from, to := range map[string][2]string{
		`"tcp://127.0.0.1:0"`:             {`"udp://127.0.0.1:0"`, "S1AP uses SCTP, or TCP in its place"},
		`network: "00101"`:                {`network: "0010"`, "want five or six digits"},
		"codes: [1, 2]":                   {"codes: [1, 256]", "want different numbers from 0 to 255"},
		"message: service-request":        {"method: INVITE", "is for types of protocol sip"},
		"message: service-request, type":  {"message: service-request, cause: boredom, type", "mo-voice-call"},
		"id: 2":                           {"id: 256", "want at most 255"},
		"name: h1, id: 2":                 {"name: h1, id: 1", ":14:20: 1: instance a1 has it already"},
		"name: attach-detach, protocol":   {"name: attach-detach, transport: udp, protocol", "tcp or sctp for S1AP"},
		"name: handover-sr, protocol":     {"name: handover-sr, number: 1, protocol", "only types of protocol gtpc have one"},
		"handover-sr, protocol: s1ap":     {"handover-sr, protocol: s1ap, spread: true, drain: dialog", "only types of protocol s1ap have it, with drain: transaction"},
		"enodebs: [127.0.0.0/8]":          {"enodebs: [\"::ffff:10.0.0.0/104\"]", "write it as IPv4"},
		"  s1ap: [\"tcp://127.0.0.1:0\"]": {"  sip: []", "such as tcp://127.0.0.1:36412"},
	} {
		path := write(t, filepath.Join(t.TempDir(), "bad.yaml"), strings.Replace(goodS1AP, from, to[0], 1))
		if _, err := Load(path); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), to[1]) {
			t.Errorf("%s: got error %v, want %q", to[0], err, to[1])
		}
	}
}

// TestKernelDecidesWhetherThereIsSCTP asks for SCTP in a listener and in a type. Whether that is
// supported depends on the kernel.
func TestKernelDecidesWhetherThereIsSCTP(t *testing.T) {
	for from, to := range map[string]string{"tcp://": "sctp://", "name: handover-sr, protocol": "name: handover-sr, transport: sctp, protocol"} {
		path := write(t, filepath.Join(t.TempDir(), "director.yaml"), strings.Replace(goodS1AP, from, to, 1))
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		over, err := c.overSCTP()
		if len(over) != 1 || over[0] != (from == "tcp://") {
			t.Errorf("%s: got SCTP listeners %v", to, over)
		}
		if possible := sctp.Possible(); (err == nil) != (possible == nil) || err != nil && !vitrine.IsUnsupported(err) {
			t.Errorf("%s: got %v, and the kernel reports %v", to, err, possible)
		}
	}
	d := newDirector(t, goodS1AP)
	write(t, d.options.Path, strings.Replace(goodS1AP, "name: handover-sr, protocol", "name: handover-sr, transport: sctp, protocol", 1))
	if err, possible := d.reload(), sctp.Possible(); (err == nil) != (possible == nil) || err != nil && !vitrine.IsUnsupported(err) {
		t.Errorf("reload: got %v, and the kernel reports %v", err, possible)
	}
	got, want := httptest.NewRecorder(), http.StatusOK
	if sctp.Possible() != nil {
		want = http.StatusBadRequest
	}
	if d.postReload(got, nil); got.Code != want {
		t.Errorf("reload by REST: got status %d, want %d: %s", got.Code, want, got.Body)
	}
}

// TestNumbersOfMMEsAreUnique checks that an ID can be used once among all S1AP types, and that it fits
// into an octet. It also checks that rules with an unknown message are refused.
func TestNumbersOfMMEsAreUnique(t *testing.T) {
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), goodS1AP))
	in := vitrine.Instance{Name: "h2", Type: "handover-sr", ID: 1, Weight: 1, Address: netip.MustParseAddrPort("127.0.0.1:15083")}
	if _, err := r.client.Put(t.Context(), in); err == nil || !strings.Contains(err.Error(), "instances a1 and h2 have the same id 1") {
		t.Errorf("%v", err)
	}
	in.ID = 300
	if _, err := r.client.Put(t.Context(), in); err == nil || !strings.Contains(err.Error(), "400: ") || !strings.Contains(err.Error(), "id 300: must be at most 255") {
		t.Errorf("%v", err)
	}
	in.ID = 3
	if _, err := r.client.Put(t.Context(), in); err != nil {
		t.Error(err)
	}
	err := r.client.PutRules(t.Context(), []client.Rule{{Message: "register", Type: "attach-detach"}})
	if err == nil || !strings.Contains(err.Error(), `no message "register"`) {
		t.Errorf("%v", err)
	}
}

// TestNumbersWithoutIDsAreUnique gives instances of two types no IDs. Among 255 numbers, hashes of 200
// names collide.
func TestNumbersWithoutIDsAreUnique(t *testing.T) {
	before, _, _ := strings.Cut(goodS1AP, "  - {name: a1,")
	var text strings.Builder
	text.WriteString(before)
	for i := range 100 {
		fmt.Fprintf(&text, "  - {name: a%d, type: attach-detach, address: \"127.0.0.1:%d\"}\n", i, 15100+i)
		fmt.Fprintf(&text, "  - {name: h%d, type: handover-sr, address: \"127.0.0.1:%d\"}\n", i, 15200+i)
	}
	d := newDirector(t, text.String())
	taken := map[uint16]string{}
	for _, in := range d.roster.list() {
		if other := taken[in.ID]; other != "" || in.ID == 0 {
			t.Errorf("instance %s has the ID %d, which %q has too", in.Name, in.ID, other)
		}
		taken[in.ID] = in.Name
	}
}

// TestExplainS1AP checks the explanation of first messages, later messages, and messages from
// strangers.
func TestExplainS1AP(t *testing.T) {
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), goodS1AP))
	plmn, _ := identity.MakePLMN("001", "01")
	cell := enb.Cell{ID: s1ap.ENB{PLMN: plmn, ID: 1}, Name: "e", TAI: identity.TAI{PLMN: plmn, TAC: 1}}
	for name, c := range map[string]struct {
		message  []byte
		from     string
		instance string
		says     string
	}{
		"service request": {cell.AppendInitial(nil, 1, nas.AppendServiceRequest(nil, 1, 2), &identity.STMSI{Code: 1, TMSI: 7}), "127.0.0.1:9", "h1", "rule 1 matches"},
		"uplink":          {cell.AppendUplink(nil, enb.IDs{MME: 1<<24 | 5, ENB: 1}, []byte{7, 0x55}), "127.0.0.1:9", "a1", "begins no connection"},
		"stranger":        {cell.AppendUplink(nil, enb.IDs{MME: 1<<24 | 5, ENB: 1}, []byte{7, 0x55}), "192.0.2.1:9", "", "none of the networks"},
	} {
		e, err := r.client.Explain(t.Context(), client.Question{Message: c.message, From: c.from})
		if err != nil || e.Instance != c.instance || !strings.Contains(strings.Join(e.Steps, "\n"), c.says) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	s, err := r.client.Status(t.Context())
	if err != nil || len(s.S1AP) != 1 || !strings.HasPrefix(s.S1AP[0], "tcp://127.0.0.1:") {
		t.Errorf("%v, %v", s.S1AP, err)
	}
}
