package epc_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/reference/epc/pgw"
)

func TestCommandLines(t *testing.T) {
	const at = "--listen 127.0.0.1:1 "
	for _, c := range []struct{ name, args, want string }{
		{"hss", "", `--listen ""`},
		{"hss", at + "--first 12x", `--first "12x"`},
		{"hss", at + "--first 999999 --subscribers 2", "--subscribers 2 from --first 999999"},
		{"hss", at + "--file /nonexistent", `--file "/nonexistent"`},
		{"hss", at + "--apn internet,,ims", `--apn "internet,,ims"`},
		{"pcrf", at + "--priority 16", "--priority 16"},
		{"pcrf", at + "--qci 0", "--qci 0"},
		{"sgw", "--listen 0.0.0.0:2123", "--listen 0.0.0.0:2123"},
		{"sgw", at + "--instance 128", "--instance 128"},
		{"sgw", at + "--type 8", "--type 8"},
		{"sgw", at + "--restart-counter 256", "--restart-counter 256"},
		{"sgw", at + "--t3 0s", "--t3 0s"},
		{"sgw", at + "--advertise here", `--advertise "here"`},
		{"sgw", at + "extra", `argument "extra"`},
		{"pgw", at + "--pool 10.0.0.0", `--pool "10.0.0.0"`},
		{"pgw", at + "--pool 10.0.0.0/31", `--pool "10.0.0.0/31"`},
		{"pgw", at + "--pool 2001:db8::/64", `--pool "2001:db8::/64"`},
		{"pgw", at + "--pcrf x", `--pcrf "x"`},
	} {
		var out, errs hosttest.Output
		err := components[c.name](t.Context(), strings.Fields(c.args), &out, &errs)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "vitrine reference "+c.name) {
			t.Errorf("%s %s: got %v, want a bad input about %s", c.name, c.args, err, c.want)
		}
	}
}

func TestHelp(t *testing.T) {
	for name, run := range components {
		var out, errs hosttest.Output
		if err := run(t.Context(), []string{"--help"}, &out, &errs); err != nil || !strings.Contains(out.String(), "--listen") {
			t.Errorf("%s --help: got error %v, output %q", name, err, out.String())
		}
	}
}

func TestPortInUse(t *testing.T) {
	s := newSite(t)
	tcp, err := net.Listen("tcp", s.at(1, diameter.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.addr(1, gtp.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for name, port := range map[string]int{"hss": diameter.Port, "pcrf": diameter.Port, "sgw": gtp.Port, "pgw": gtp.Port} {
		var out, errs hosttest.Output
		at := s.at(1, port)
		err := components[name](t.Context(), []string{"--listen", at}, &out, &errs)
		if err == nil || !strings.Contains(err.Error(), at+": the port is in use") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestComponentsEndWithTheirContext(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, args := range map[string]string{
		"hss": "--listen " + s.at(1, diameter.Port), "pcrf": "--listen " + s.at(2, diameter.Port),
		"sgw": "--listen " + s.at(3, gtp.Port) + " --downlink " + s.at(3, 8080),
		"pgw": "--listen " + s.at(4, gtp.Port) + " --pcrf " + s.at(5, diameter.Port),
	} {
		var out, errs hosttest.Output
		if err := components[name](ctx, strings.Fields(args), &out, &errs); err != nil && !strings.Contains(err.Error(), "canceled") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadyWhenConnected: a P-GW is not ready before it has its PCRF. At the end it
// prints its counters.
func TestReadyWhenConnected(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs hosttest.Output
	done := make(chan error, 1)
	go func() {
		done <- pgw.Run(ctx, []string{
			"--listen", s.at(21, gtp.Port), "--metrics", s.at(21, 9090), "--pcrf", s.at(31, diameter.Port), "--print-counters",
		}, &out, &errs)
	}()
	status := func() int {
		res, err := http.Get("http://" + s.at(21, 9090) + "/ready")
		if err != nil {
			return 0 // it does not listen yet
		}
		res.Body.Close()
		return res.StatusCode
	}
	s.until("the P-GW answers that it is not ready", func() bool { return status() == http.StatusServiceUnavailable })
	s.pcrf()
	s.until("the P-GW is ready", func() bool { return status() == http.StatusOK })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "\npgw_sessions 0\n") {
		t.Errorf("the P-GW printed no counters: %s", out.String())
	}
}
