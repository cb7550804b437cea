package ims_test

import (
	"encoding/csv"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"

	"vitrine/reference/ims"
)

// call sends the INVITE of a call.
func (p *phone) call(callee, callID string, headers ...string) *pending {
	p.t.Helper()
	return p.ask("INVITE", ims.PublicID(callee), append(headers, "To: <"+ims.PublicID(callee)+">", "Call-ID: "+callID)...)
}

// forged is a charging identifier that a phone chose itself.
const forged = "P-Charging-Vector: icid-value=forged"

// within returns a request of the dialog that an INVITE's 2xx created.
func (p *phone) within(method string, ok *sip.Response, branch string) []byte {
	p.t.Helper()
	headers := append(routeLines(ok.GetHeaders("Record-Route"), true), "To: "+ok.To().Value(), "Call-ID: "+string(*ok.CallID()))
	return p.message(method, ok.Contact().Address.String(), branch, headers...)
}

// talk makes a call, and hangUp, one of the two phones, ends it.
func talk(t *testing.T, a, b *phone, hangUp *phone) {
	t.Helper()
	call := a.call(b.user, "call-"+sip.GenerateBranch(), forged)
	call.until(100)
	invite := b.expect("INVITE")
	if want := b.contact(); invite.Recipient.String() != want {
		t.Errorf("INVITE: got recipient %s, want %s", invite.Recipient.String(), want)
	}
	if h := invite.GetHeader("P-Asserted-Identity"); h == nil || !strings.Contains(h.Value(), ims.PublicID(a.user)) {
		t.Errorf("got P-Asserted-Identity %v", h)
	}
	if n := len(invite.GetHeaders("Record-Route")); n != 3 { // Bono, Sprout, Bono
		t.Errorf("got %d Record-Routes, want 3", n)
	}
	b.reply(invite, 180, "Ringing")
	call.until(180)
	b.reply(invite, 200, "OK")
	ok := a.want(call.final(), 200)
	ack := a.within("ACK", ok, sip.GenerateBranch())
	a.send([]byte(strings.Replace(string(ack), "CSeq: "+ok.CSeq().Value(), "CSeq: "+strings.Replace(ok.CSeq().Value(), "INVITE", "ACK", 1), 1)))
	b.expect("ACK")

	other, headers := b, append(routeLines(ok.GetHeaders("Record-Route"), true), "To: "+ok.To().Value())
	target := ok.Contact().Address.String()
	if hangUp == b {
		other, target = a, invite.Contact().Address.String()
		headers = append(routeLines(invite.GetHeaders("Record-Route"), false), "To: "+invite.From().Value(), "From: "+ok.To().Value())
	}
	bye := hangUp.ask("BYE", target, append(headers, forged, "Call-ID: "+string(*ok.CallID()))...)
	other.reply(other.expect("BYE"), 200, "OK")
	hangUp.want(bye.final(), 200)
}

func TestCall(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testCall)
}

func testCall(t *testing.T, s site) {
	cdr := filepath.Join(t.TempDir(), "cdr.csv")
	start(t, "ralf", "--listen", s.at(32, 10888), "--records", cdr, "--metrics", s.at(32, 9090))
	bono := s.single("--ralf", s.at(32, 10888))
	a, b := s.phone(41, 10, bono), s.phone(42, 11, bono)

	if got := a.call(b.user, "early").final().StatusCode; got != 403 {
		t.Errorf("call by an unregistered user: got %d, want 403", got)
	}
	a.want(a.register(60, forged), 401)
	a.want(a.register(60, forged), 200)
	if got := a.call(b.user, "absent").final().StatusCode; got != 480 {
		t.Errorf("call to an unregistered user: got %d, want 480", got)
	}
	if got := a.call("nobody", "nobody").final().StatusCode; got != 404 {
		t.Errorf("call to an unknown user: got %d, want 404", got)
	}
	b.signIn(60)
	talk(t, a, b, a)
	talk(t, a, b, b)

	// Two registrations, two starts and two stops.
	eventually(t, "six charging records", func() bool { return s.metric(32, "ralf_records_total") == 6 })
	file, err := os.Open(cdr)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) != 6 {
		t.Fatalf("got %d records, error %v, want 6", len(rows), err)
	}
	kinds := map[string]int{}
	for _, row := range rows {
		kinds[row[1]+" "+row[2]]++
		if icid := row[6]; strings.Contains(icid, "forged") {
			t.Errorf("the record of %s has the phone's own charging identifier: %s", row[2], icid)
		}
	}
	if kinds["1 REGISTER"] != 2 || kinds["2 INVITE"] != 2 || kinds["4 BYE"] != 2 {
		t.Errorf("records by type and method: got %v", kinds)
	}
}

func TestCallIsCancelled(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testCallIsCancelled)
}

func testCallIsCancelled(t *testing.T, s site) {
	bono := s.single()
	a, b := s.phone(41, 12, bono), s.phone(42, 13, bono)
	a.signIn(60)
	b.signIn(60)
	call := a.call(b.user, "cancelled")
	invite := b.expect("INVITE")
	b.reply(invite, 180, "Ringing")
	call.until(180)
	cancel := string(call.data)
	cancel = strings.Replace(cancel, "INVITE sip:", "CANCEL sip:", 1)
	cancel = strings.Replace(cancel, " INVITE\r\n", " CANCEL\r\n", 1)
	a.send([]byte(cancel))
	b.reply(b.expect("CANCEL"), 200, "OK")
	b.reply(invite, 487, "Request Terminated")
	b.expect("ACK") // from Bono: the ACK to a 487 is hop by hop
	for {
		res := call.final()
		if res.CSeq().MethodName == sip.CANCEL {
			a.want(res, 200)
			continue
		}
		a.want(res, 487)
		break
	}
}

func TestBarredCallsAreDeclined(t *testing.T) {
	t.Parallel()
	forEachKeeper(t, testBarredCallsAreDeclined)
}

func testBarredCallsAreDeclined(t *testing.T, s site) {
	bono := s.single()
	a, b := s.phone(41, 14, bono), s.phone(42, 15, bono)
	a.signIn(60)
	b.signIn(60)
	put := func(user, document string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodPut, "http://"+s.at(31, 7888)+ims.ServicesPath(ims.PublicID(user)), strings.NewReader(document))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	barring := `<simservs xmlns="http://uri.etsi.org/ngn/params/xml/simservs/xcap"><incoming-communication-barring active="true"><ruleset><rule id="r"><actions><allow>false</allow></actions></rule></ruleset></incoming-communication-barring></simservs>`
	if got := put(b.user, "<nonsense"); got != http.StatusConflict {
		t.Errorf("PUT of an invalid document: got %d, want 409", got)
	}
	if got := put(b.user, barring); got != http.StatusCreated {
		t.Fatalf("PUT: got %d, want 201", got)
	}
	if got := a.call(b.user, "barred").final().StatusCode; got != 603 {
		t.Errorf("call to a user who bars calls: got %d, want 603", got)
	}
	call := b.call(a.user, "allowed") // only incoming calls are barred
	a.reply(a.expect("INVITE"), 486, "Busy Here")
	b.want(call.final(), 486)
}
