package mme_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/sctp"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/sgw"
	"vitrine/reference/epc/ue"
	"vitrine/wire/s1ap"
)

// addresses are the flags that an MME needs. Nobody is at them.
const addresses = "--s1 127.0.0.1:1 --listen 127.0.0.1:1 --hss 127.0.0.1:1 --sgw 127.0.0.1:1 --pgw 127.0.0.1:1 "

func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"":                                `--s1 ""`,
		"--s1 127.0.0.1:1":                `--listen ""`,
		addresses + "--network 0010":      `--network "0010"`,
		addresses + "--network 00x01":     `--network "00x01"`,
		addresses + "--ciphering snow":    `--ciphering "snow"`,
		addresses + "--overload maybe":    `--overload "maybe"`,
		addresses + "--workers 0":         "--workers 0",
		addresses + "--s1-transport udp":  `--s1-transport "udp"`,
		addresses + "--target-delay 0s":   "--target-delay 0s",
		addresses + "--instance 128":      "--instance 128",
		addresses + "--instance nothing":  "instance",
		addresses + "--name=":             `--name ""`,
		addresses + "extra":               `argument "extra"`,
		addresses + "--hss 127.0.0.1":     `--hss "127.0.0.1"`,
		addresses + "--sgw localhost:123": `--sgw "localhost:123"`,
	} {
		var out, errs bytes.Buffer
		err := mme.Run(t.Context(), strings.Fields(args), &out, &errs)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a bad input about %s", args, err, want)
		}
	}
}

func TestHelpNamesTheTransport(t *testing.T) {
	var out, errs bytes.Buffer
	if err := mme.Run(t.Context(), []string{"--help"}, &out, &errs); err != nil || !strings.Contains(out.String(), "not SCTP") {
		t.Errorf("%v, printed %q", err, out.String())
	}
}

// TestKernelDecidesWhetherThereIsSCTP starts an MME over SCTP. A kernel without it is named,
// with what to do.
func TestKernelDecidesWhetherThereIsSCTP(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	args := strings.Fields(addresses + "--s1 127.0.0.1:0 --listen 127.0.0.1:0 --s1-transport sctp")
	err := mme.Run(ctx, args, io.Discard, io.Discard)
	if sctp.Possible() == nil {
		if err != nil {
			t.Errorf("the kernel supports SCTP, but got %v", err)
		}
	} else if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "modprobe sctp") {
		t.Errorf("the kernel does not support SCTP, but got %v", err)
	}
}

func TestPortsInUse(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	for flag, at := range map[string]string{"s1": taken.Addr().String(), "listen": packets.LocalAddr().String()} {
		var out, errs bytes.Buffer
		args := strings.Fields(addresses + "--s1 127.0.0.1:0 --listen 127.0.0.1:0 --" + flag + " " + at)
		if err := mme.Run(t.Context(), args, &out, &errs); err == nil || !strings.Contains(err.Error(), at+": the port is in use") {
			t.Errorf("--%s: %v", flag, err)
		}
	}
}

// TestDownlinkPacketPagesTheUE attaches a UE to the whole EPC, by its own protocols,
// lets it become idle, and sends it a packet.
func TestDownlinkPacketPagesTheUE(t *testing.T) {
	at := func(host, port int) string { return fmt.Sprintf("127.%d.9.%d:%d", 100+os.Getpid()%100, host, port) }
	hosttest.Start(t, patience, "hss", hss.Run, "--listen", at(41, 3868))
	hosttest.Start(t, patience, "pgw", pgw.Run, "--listen", at(21, 2123))
	hosttest.Start(t, patience, "sgw", sgw.Run, "--listen", at(11, 2123), "--downlink", at(11, 8080))
	hosttest.Start(t, patience, "mme", mme.Run, "--s1", at(1, 36412), "--listen", at(1, 2123), "--metrics", at(1, 9090), "--hss", at(41, 3868), "--sgw", at(11, 2123), "--pgw", at(21, 2123))
	packet := func() string {
		res, err := http.Post("http://"+at(11, 8080)+"/downlink/001010000000005", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	hosttest.Until(t, patience, "the MME has a connection to the HSS", func() bool {
		text, err := hosttest.Scrape(at(1, 9090))
		if err != nil {
			t.Fatal(err)
		}
		return hosttest.Metric(t, text, "s6a_connected") == 1
	})
	b := &bed{t: t, addr: at(1, 36412)}
	e := b.enodeb(1)
	p := e.phone(5)
	p.begin(p.AppendAttach(nil))
	p.answerChallenge()
	complete := p.take(e.expect(s1ap.Initiating, s1ap.InitialContextSetup), ue.Accepted)
	e.send(e.AppendContextSetUp(nil, p.ids, 5))
	p.uplink(complete)
	hosttest.Until(t, patience, "the S-GW has the eNodeB's end", func() bool { return strings.Contains(packet(), `"paged":false`) })
	e.send(e.AppendReleaseRequest(nil, p.ids, s1ap.CauseUserInactivity))
	p.hangUp()
	hosttest.Until(t, patience, "the UE is paged", func() bool { return strings.Contains(packet(), `"paged":true`) })
	if m := e.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Errorf("paging: got %+v, want %+v", m.Paged, p.GUTI.STMSI())
	}
	p.begin(p.AppendService(nil))
	e.expect(s1ap.Initiating, s1ap.InitialContextSetup)
}

func TestMMEEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	args := strings.Fields(addresses + "--s1 127.0.0.1:0 --listen 127.0.0.1:0")
	if err := mme.Run(ctx, args, &out, &errs); err != nil && !strings.Contains(err.Error(), "canceled") {
		t.Error(err)
	}
}
