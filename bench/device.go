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

// A device receives messages on devicePort and forwards them to the instances.
type device struct {
	name    string
	command func(ctx context.Context, s *stage) (*exec.Cmd, error)
	beside  func(ctx context.Context, s *stage) *exec.Cmd // runs during the measurement; nil: nothing
}

// bareForwarder is the cheapest device that receives each datagram on its own, so without UDP_GRO. It does
// not look at messages and sends them to all destinations in turn.
func bareForwarder(to ports) device {
	return device{name: "a bare recvmmsg/sendmmsg forwarder in C", command: func(ctx context.Context, s *stage) (*exec.Cmd, error) {
		return forwarding(ctx, s.forwarder, to)
	}}
}

// forwarding returns the command of a forwarder in C to the ports.
func forwarding(ctx context.Context, program string, to ports) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, program, fmt.Sprint(devicePort), fmt.Sprint(to.first), fmt.Sprint(to.count))
	_, err := cmd.StdinPipe() // the forwarder ends when this pipe closes
	return cmd, err
}

// kamailioConfig is a minimal configuration for stateless dispatching: one
// receiving process and a hash of the Call-ID (algorithm 0).
const kamailioConfig = `#!KAMAILIO
debug=0
log_stderror=yes
children=1
disable_tcp=yes
auto_aliases=no
use_dns_cache=off
%slisten=udp:127.0.0.1:%d
mpath="%s"
loadmodule "dispatcher.so"
modparam("dispatcher", "list_file", "%s")
request_route {
	ds_select_dst("1", "0");
	forward();
}
`

// kamailio returns Kamailio with its default receive buffer.
func kamailio(version string) device {
	return device{name: "Kamailio " + version + ", dispatcher, one child, forward()", command: startKamailio("")}
}

// roomyKamailio returns Kamailio with a receive buffer as large as the bare forwarder requests.
func roomyKamailio(version string) device {
	d := kamailio(version)
	d.name += ", 4 MiB of receive buffer"
	d.command = startKamailio("maxbuffer=4194304\n")
	return d
}

func kamailioVersion(ctx context.Context) (string, error) {
	if err := programs("kamailio"); err != nil {
		return "", err
	}
	line, err := firstLine(ctx, "kamailio", "-v")
	_, rest, _ := strings.Cut(line, "version: kamailio ")
	version, _, _ := strings.Cut(rest, " ")
	return version, err
}

// startKamailio returns a command function for Kamailio with additional configuration lines.
func startKamailio(more string) func(context.Context, *stage) (*exec.Cmd, error) {
	return func(ctx context.Context, s *stage) (*exec.Cmd, error) {
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
			os.WriteFile(config, fmt.Appendf(nil, kamailioConfig, more, devicePort, modules[0]+"/", list), 0o644))
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, "kamailio", "-f", config, "-DD", "-E", "-m", "64", "-M", "8", "-Y", dir, "-n", "1"), nil
	}
}

// director returns the product. All its rules choose one type, which has an instance at each of the
// ports. No instance answers, so health probes are off.
func director(to ports) device {
	rules := ""
	for _, method := range methods {
		rules += fmt.Sprintf("- {method: %s, type: session}\n", method)
	}
	return directorDevice("sip", "{name: session, protocol: sip}", rules, to)
}

func gtpcDirector(to ports) device {
	kind := fmt.Sprintf("{name: session, protocol: gtpc, number: %d}", gtpcNumber)
	return directorDevice("gtpc", kind, "- {type: session}\n", to)
}

// controlPort is the port of the director's REST API.
const controlPort = 8090

func directorDevice(protocol, kind, rules string, to ports) device {
	var b bytes.Buffer
	transport := "udp"
	if protocol == "s1ap" {
		transport = "tcp"
	}
	fmt.Fprintf(&b, "listen: {%s: [\"%s://127.0.0.1:%d\"], control: \"127.0.0.1:%d\"}\n", protocol, transport, devicePort, controlPort)
	fmt.Fprintf(&b, "health: {%s: off}\ntypes: [%s]\nrules:\n%sinstances:\n", protocol, kind, rules)
	for i := range to.count {
		fmt.Fprintf(&b, "- {name: i%d, id: %d, type: session, address: \"127.0.0.1:%d\", weight: 100}\n", i, i+1, to.first+i)
	}
	return device{name: "the director", command: func(ctx context.Context, s *stage) (*exec.Cmd, error) {
		dir, err := os.MkdirTemp(s.dir, "director-")
		if err != nil {
			return nil, err
		}
		config := filepath.Join(dir, "director.yaml")
		// All runs use one key, because the corpus has routes that are signed with it.
		if err := os.WriteFile(filepath.Join(s.dir, "bench.keys"), []byte("1 000102030405060708090a0b0c0d0e0f 2026-01-01T00:00:00Z\n"), 0o600); err != nil {
			return nil, err
		}
		if err := os.WriteFile(config, append(b.Bytes(), "keys: {file: ../bench.keys}\n"...), 0o644); err != nil {
			return nil, err
		}
		program, err := product(ctx, s.dir)
		return exec.CommandContext(ctx, program, "director", "run", config), err
	}}
}

// with starts the device, calls use and stops the device. An error includes the device's stderr.
func (s *stage) with(ctx context.Context, d device, use func() error) (err error) {
	cmd, err := d.command(ctx, s)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &stderr
	if err := s.start(cmd, s.devices); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	if err = use(); err != nil {
		err = fmt.Errorf("%s: %w", d.name, err)
	}
	if stopped := stop(cmd); stopped != nil || err != nil {
		err = errors.Join(err, stopped, errors.New(stderr.String()))
	}
	return err
}

// ceiling returns the device's highest rate under the corpus.
func (s *stage) ceiling(ctx context.Context, d device, f floodPlan) (found ceiling, err error) {
	err = s.under(ctx, d, f, func(l *udpLoad) (err error) {
		found, err = s.beside(ctx, d, func() (ceiling, error) { return findCeiling(ctx, l.send, f.most) })
		return err
	})
	return found, err
}

// under starts the device and waits until it forwards. Then it starts the load tool with the corpus
// and calls use.
func (s *stage) under(ctx context.Context, d device, f floodPlan, use func(l *udpLoad) error) error {
	return s.with(ctx, d, func() error {
		if _, err := s.pass(ctx, f, burstSize); err != nil {
			return err
		}
		l, err := s.drive(ctx, devicePort, f.sources, f.sinks, f.corpus)
		if err != nil {
			return err
		}
		return errors.Join(use(l), l.close())
	})
}

// beside runs the device's side process, if any, during the measurement. Any output of that process
// on stderr is an error.
func (s *stage) beside(ctx context.Context, d device, measure func() (ceiling, error)) (ceiling, error) {
	if d.beside == nil {
		return measure()
	}
	cmd := d.beside(ctx, s)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := s.startLoad(cmd); err != nil {
		return ceiling{}, err
	}
	found, err := measure()
	if stopped := stop(cmd); stopped != nil || stderr.Len() > 0 {
		err = errors.Join(err, stopped, errors.New(stderr.String()))
	}
	return found, err
}
