package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"vitrine"
)

// A device takes SIP on devicePort and gives it to the instances.
type device struct {
	name    string
	proxies bool // adds a Via, and picks by Call-ID
	command func(ctx context.Context, s *stage) (*exec.Cmd, error)
}

// bareForwarder is the least that a device can do. It knows neither requests
// from responses nor one destination from another: it goes through them all.
func bareForwarder(to ports) device {
	return device{"a bare recvmmsg/sendmmsg forwarder in C", false, func(ctx context.Context, s *stage) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, s.forwarder, fmt.Sprint(devicePort), fmt.Sprint(to.first), fmt.Sprint(to.count))
		stdin, err := cmd.StdinPipe() // it ends with this
		_ = stdin
		return cmd, err
	}}
}

// kamailioConfig is the least that dispatches statelessly: one process that
// receives, over a hash of the Call-ID (algorithm 0), as much buffer as the
// forwarder has.
const kamailioConfig = `#!KAMAILIO
debug=0
log_stderror=yes
children=1
disable_tcp=yes
auto_aliases=no
use_dns_cache=off
maxbuffer=4194304
listen=udp:127.0.0.1:%d
mpath="%s"
loadmodule "dispatcher.so"
modparam("dispatcher", "list_file", "%s")
request_route {
	ds_select_dst("1", "0");
	forward();
}
`

// kamailio is the peer.
func kamailio(version string) device {
	return device{"Kamailio " + version + ", dispatcher, one child, forward()", true, startKamailio}
}

func kamailioVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "kamailio", "-v").Output()
	if err != nil {
		return "", &vitrine.Unsupported{What: "a comparison with Kamailio", Missing: "kamailio: " + err.Error(), Do: "install kamailio"}
	}
	_, rest, _ := strings.Cut(string(out), "version: kamailio ")
	version, _, _ := strings.Cut(rest, " ")
	return version, nil
}

func startKamailio(ctx context.Context, s *stage) (*exec.Cmd, error) {
	program, err := exec.LookPath("kamailio")
	if err != nil {
		return nil, &vitrine.Unsupported{What: "a comparison with Kamailio", Missing: "kamailio", Do: "install kamailio"}
	}
	modules, err := filepath.Glob("/usr/lib*/*/kamailio/modules")
	if err != nil || len(modules) == 0 {
		return nil, &vitrine.Unsupported{What: "a comparison with Kamailio", Missing: "its modules, in /usr/lib", Do: "install kamailio"}
	}
	dir := filepath.Join(s.dir, "kamailio")
	list, config := filepath.Join(dir, "dispatcher.list"), filepath.Join(dir, "kamailio.cfg")
	var lines bytes.Buffer
	for i := range instances.count {
		fmt.Fprintf(&lines, "1 sip:127.0.0.1:%d\n", instances.first+i)
	}
	err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(list, lines.Bytes(), 0o644),
		os.WriteFile(config, fmt.Appendf(nil, kamailioConfig, devicePort, modules[0]+"/", list), 0o644))
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, program, "-f", config, "-DD", "-E", "-m", "64", "-M", "8", "-Y", dir, "-n", "1"), nil
}

// director is the product: one type, to which every rule sends, with an
// instance at each of the ports. Nothing answers there, so nothing is probed.
func director(to ports) device {
	return device{"the director", true, func(ctx context.Context, s *stage) (*exec.Cmd, error) {
		config := filepath.Join(s.dir, fmt.Sprintf("director-%d.yaml", to.count))
		if err := os.WriteFile(config, directorConfig(to), 0o644); err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, s.director, "director", "run", config), nil
	}}
}

// controlPort is where the director's REST API is.
const controlPort = 8090

func directorConfig(to ports) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "listen: {sip: [\"udp://127.0.0.1:%d\"], control: \"127.0.0.1:%d\"}\n", devicePort, controlPort)
	b.WriteString("health: {sip: off}\ntypes: [{name: session, protocol: sip}]\nrules:\n")
	for _, method := range methods {
		fmt.Fprintf(&b, "- {method: %s, type: session}\n", method)
	}
	b.WriteString("instances:\n")
	for i := range to.count {
		fmt.Fprintf(&b, "- {name: i%d, type: session, address: \"127.0.0.1:%d\", weight: 100}\n", i, to.first+i)
	}
	return b.Bytes()
}

// with runs the device while use does.
func (s *stage) with(ctx context.Context, d device, use func() error) (err error) {
	cmd, err := d.command(ctx, s)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := s.start(cmd, s.devices); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	if err = use(); err != nil {
		err = fmt.Errorf("%s: %w", d.name, err)
	}
	if stopped := stop(cmd); stopped != nil || err != nil {
		err = errors.Join(err, stopped, errors.New(said.String()))
	}
	return err
}

// ceiling is the device's highest rate under the corpus.
func (s *stage) ceiling(ctx context.Context, d device, f floodPlan) (found ceiling, err error) {
	err = s.with(ctx, d, func() error {
		if _, err := s.pass(ctx, f, burstSize); err != nil {
			return err
		}
		l, err := s.drive(ctx, devicePort, f.sources, f.sinks, f.corpus)
		if err != nil {
			return err
		}
		found, err = highest(ctx, l.send, f.most)
		return errors.Join(err, l.close())
	})
	return found, err
}
