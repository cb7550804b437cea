package ovs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"vitrine"
)

// patience is how long a command may take: the switch is given the time to do
// what it is told before the command returns.
const patience = 30 * time.Second

// A client tells a switch what to do, by the programs that come with it.
type client struct {
	socket   string            // of the database server
	programs map[string]string // paths by name
}

// newClient finds the programs.
func newClient(socket string) (*client, error) {
	c := &client{socket: socket}
	var err error
	c.programs, err = find("ovs-vsctl", "ovs-ofctl", "ovs-appctl")
	return c, err
}

// find looks for programs of Open vSwitch.
func find(names ...string) (map[string]string, error) {
	found := make(map[string]string, len(names))
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, &vitrine.Unsupported{What: "the fabric ovs", Missing: "the program " + name, Do: "install Open vSwitch (Debian: openvswitch-switch), or use the fabric bridge"}
		}
		found[name] = path
	}
	return found, nil
}

// run runs a program to its end and gives what it wrote.
func (c *client) run(ctx context.Context, input, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.programs[program], args...) //nolint:gosec // found by newClient
	// Where the programs look for the switch's other sockets.
	cmd.Env = []string{"OVS_RUNDIR=" + filepath.Dir(c.socket), "OVS_SYSLOG_METHOD=null"}
	cmd.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err == nil && strings.Contains(said.String(), "Error detected") {
		// ovs-vsctl says so, and succeeds, when the switch cannot do what the
		// database now holds.
		err = errors.New("the switch refuses")
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// vsctl changes the switch's database and waits until the switch has followed.
func (c *client) vsctl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", "ovs-vsctl", append([]string{"--db=unix:" + c.socket}, args...)...)
}

// replaceFlows makes the rules those of the bridge, at once; what stays the
// same keeps its counters.
func (c *client) replaceFlows(ctx context.Context, bridge string, rules []string) error {
	_, err := c.run(ctx, strings.Join(rules, "\n")+"\n", "ovs-ofctl", "--bundle", "--protocols=OpenFlow14", "replace-flows", bridge, "-")
	return err
}

// settle waits until the switch has gone through what its datapath keeps of
// rules, which it does twice a second: frames then go by the rules as they are,
// and the rules' counters are the datapath's.
func (c *client) settle(ctx context.Context) error {
	// The round that is going on may have passed a rule already: the second is whole.
	for range 2 {
		if _, err := c.run(ctx, "", "ovs-appctl", "revalidator/wait"); err != nil {
			return err
		}
	}
	return nil
}

// dumpFlows gives the bridge's rules with their counters.
func (c *client) dumpFlows(ctx context.Context, bridge string) (string, error) {
	if err := c.settle(ctx); err != nil {
		return "", err
	}
	return c.run(ctx, "", "ovs-ofctl", "--protocols=OpenFlow14", "dump-flows", bridge)
}

// version is that of the programs: "3.1.0".
func (c *client) version(ctx context.Context) (string, error) {
	out, err := c.run(ctx, "", "ovs-vsctl", "--version")
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(out, "\n")
	return line[strings.LastIndexByte(line, ' ')+1:], nil
}
