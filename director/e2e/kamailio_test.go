package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
)

// requirePrograms skips the test if a program that it drives is not installed.
func requirePrograms(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&vitrine.Unsupported{What: "the proof of the director", Missing: "the program " + program, Do: "run .ci/install"})
		}
	}
	hosttest.Need(t, netns.Possible()) // tcpdump needs the same privileges
}

// An instance is one Kamailio that forms an aggregate: see testdata/instance.cfg.
type instance struct {
	*process
	name, ty string
	address  string // of its ingress
}

// kamailio starts an instance at the site's host and returns when it answers.
func (s site) kamailio(host int, name, ty string) *instance {
	s.t.Helper()
	config, err := filepath.Abs("testdata/instance.cfg")
	if err != nil {
		s.t.Fatal(err)
	}
	in := &instance{name: name, ty: ty, address: s.at(host, sipPort)}
	at := netip.MustParseAddrPort(in.address)
	address := strings.TrimSuffix(in.address, fmt.Sprintf(":%d", at.Port())) // with the brackets of IPv6
	again, most := 500, 4000                                                 // ms until a retransmission
	if s.tcp {
		again, most = 20000, 20000 // avoid retransmissions: SIPp takes each for a new message
	}
	in.process = spawn(s.t, name, s.dir, []string{"NAME=" + name, "ADDRESS=" + address, fmt.Sprintf("PORT=%d", at.Port()), fmt.Sprintf("AGAIN=%d", again), fmt.Sprintf("MOST=%d", most)},
		"kamailio", "-DD", "-E", "-f", config, "-m", "768", "-M", "4", "-w", s.dir, "-P", filepath.Join(s.dir, name+".pid"))
	eventually(s.t, name+" answers", func() bool {
		if !in.running() {
			s.t.Fatalf("%s ended: %v", name, in.err)
		}
		return answers(in.address, 200*time.Millisecond)
	})
	return in
}

// answers reports whether an OPTIONS is answered within the time.
func answers(address string, within time.Duration) bool {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	local := conn.LocalAddr()
	request := fmt.Sprintf("OPTIONS sip:%s SIP/2.0\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bKprobe\r\nMax-Forwards: 70\r\n"+
		"From: <sip:probe@%s>;tag=1\r\nTo: <sip:%s>\r\nCall-ID: probe@%s\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n",
		address, local, local, address, local)
	if _, err := conn.Write([]byte(request)); err != nil {
		return false
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return false
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	return err == nil && strings.HasPrefix(string(answer[:n]), "SIP/2.0 200")
}
