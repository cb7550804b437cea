package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"vitrine/director/directortest"
)

// TestRestartChanged checks a restart with changed workers and listeners. The new process must
// take over steering memory and counters, and close the removed listeners.
func TestRestartChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	in := &instance{name: "registration-1", ty: registration, address: s.at(firstInstance, sipPort)}
	answerOK(t, in.address)
	gone := `, "udp://` + s.at(firstDirector+1, gtpcPort)
	d := s.director(firstDirector, options{
		GTPC: s.at(firstDirector, gtpcPort) + `"` + gone, Transition: "30s",
		Types: "- {name: attach, protocol: gtpc, number: 1}", Rules: "- {type: attach}",
	})
	fleet{d}.put(entry(in, 1))
	eventually(t, "the instance is in force", func() bool { return !d.status().Pending })
	const requests = 20
	c, err := net.Dial("udp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range requests {
		if _, err := c.Write(request("REGISTER", fmt.Sprintf("changed-%d", i), "")); err != nil {
			t.Fatal(err)
		}
	}
	answered := func() bool {
		return d.metric("vitrine_director_latency_seconds_count", `type="registration"`) == requests
	}
	eventually(t, "all are answered", answered)

	text, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("workers: 2", "workers: 4", `, "tcp://`+d.address+`"`, "", gone+`"`, "").Replace(string(text))
	changed += fmt.Sprintf("instances: [{name: %s, type: %s, address: %q, weight: 100, id: 1}]\n", in.name, in.ty, in.address)
	if err := os.WriteFile(d.file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	d.restart()
	if !answered() { // at once: the new process answers nobody before it has the counts
		t.Error("the restarted director lost the count of answers")
	}
	eventually(t, "the old process hands over", func() bool { return strings.Contains(d.output(), fmt.Sprintf(`msg="took over" keys=%d`, requests)) })
	eventually(t, "TCP is not listened to", func() bool {
		l, err := net.Listen("tcp", d.address)
		return err == nil && l.Close() == nil
	})
	eventually(t, "the second address of GTP-C is not listened to", func() bool {
		l, err := net.ListenPacket("udp", s.at(firstDirector+1, gtpcPort))
		return err == nil && l.Close() == nil
	})
}

// answerOK answers every SIP request at an address with 200.
func answerOK(t *testing.T, address string) {
	t.Helper()
	directortest.Answer(t, address, func(request []byte) []byte { return directortest.Response(request, 200) })
}
