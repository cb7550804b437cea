package director

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// An agent is one SIP endpoint over UDP.
type agent struct {
	t testing.TB
	*net.UDPConn
}

func newAgent(t testing.TB, host string) agent {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(host)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return agent{t, c}
}

func (a agent) send(to *running, text string) {
	a.t.Helper()
	if _, err := a.WriteToUDPAddrPort([]byte(text), to.protocols[0].Addresses()[0]); err != nil {
		a.t.Fatal(err)
	}
}

// receive returns the next message.
func (a agent) receive() string {
	a.t.Helper()
	if err := a.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		a.t.Fatal(err)
	}
	text := make([]byte, 1<<16)
	n, err := a.Read(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text[:n])
}

// dialog returns a request within a dialog.
func dialog(to, route string, cseq int) string {
	return fmt.Sprintf("BYE sip:bob@%s SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bK%d\r\nRoute: <%s;lr>\r\nMax-Forwards: 70\r\n"+
		"From: <sip:alice@example.com>;tag=1\r\nTo: <sip:bob@example.com>;tag=2\r\nCall-ID: one\r\nCSeq: %d BYE\r\nContent-Length: 0\r\n\r\n", to, cseq, route, cseq)
}

// TestTrusted checks that a request by Record-Route goes outward only if it comes from a trusted
// network. Otherwise it goes to the instance. A reload must change the trusted networks.
func TestTrusted(t *testing.T) {
	client, instance, egress := newAgent(t, "127.0.0.1"), newAgent(t, "127.0.0.2"), newAgent(t, "127.0.9.9")
	file := strings.Replace(good, "127.0.0.1:15063", instance.LocalAddr().String(), 1)
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), file))
	client.send(r, string(request("INVITE", "one")))
	out := regexp.MustCompile(`sip:o\.[^;>]+`).FindString(instance.receive())
	if out == "" {
		t.Fatal("the INVITE that reached the instance has no Record-Route")
	}

	egress.send(r, dialog(client.LocalAddr().String(), out, 2))
	if got := instance.receive(); !strings.HasPrefix(got, "BYE ") {
		t.Errorf("request from an untrusted network: the instance got %q, want BYE", got)
	}
	write(t, r.options.Path, file+"trusted: [127.0.9.0/24]\n")
	if err := r.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	egress.send(r, dialog(client.LocalAddr().String(), out, 3))
	if got := client.receive(); !strings.HasPrefix(got, "BYE ") || !strings.Contains(got, "CSeq: 3 BYE") {
		t.Errorf("request from a trusted network: the client got %q, want BYE with CSeq 3", got)
	}
}

func TestTrustedMistakes(t *testing.T) {
	for more, want := range map[string]string{
		"trusted: [\"::/0\"]\n":                "anybody could send through the director",
		"trusted: [0.0.0.0/0]\n":               "anybody could send through the director",
		"trusted: [\"::ffff:10.0.0.0/104\"]\n": "write it as IPv4",
		"trusted: [127.0.0.1]\n":               `trusted[0] is "127.0.0.1": want a network such as 10.3.0.0/16`,
		"trusted: [10.1.2.3/99]\n":             `trusted[0] is "10.1.2.3/99": want a network`,
		"trusted: [\"\"]\n":                    `trusted[0] is "": want a network`,
	} {
		path := write(t, filepath.Join(t.TempDir(), "bad.yaml"), good+more)
		if _, err := Load(path); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", more, err, want)
		}
	}
}
