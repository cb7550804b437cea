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

// commandTimeout is the time limit of a command. A command returns only after the
// switch has applied it.
const commandTimeout = 30 * time.Second

// A client controls a switch by the programs of Open vSwitch.
type client struct {
	socket   string            // of the database server
	programs map[string]string // paths by name
}

// newClient finds the programs that a client needs.
func newClient(socket string) (*client, error) {
	c := &client{socket: socket}
	var err error
	c.programs, err = find("ovs-vsctl", "ovs-ofctl", "ovs-appctl")
	return c, err
}

// find returns the paths of programs of Open vSwitch. If one is missing, the
// error is a *vitrine.Unsupported.
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

// run runs a program to its end and returns its output.
func (c *client) run(ctx context.Context, input, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.programs[program], args...) //nolint:gosec // found by newClient
	// The programs look here for the switch's other sockets.
	cmd.Env = []string{"OVS_RUNDIR=" + filepath.Dir(c.socket), "OVS_SYSLOG_METHOD=null"}
	cmd.Stdin = strings.NewReader(input)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if err == nil && strings.Contains(stderr.String(), "Error detected") {
		// ovs-vsctl prints this but succeeds when the switch cannot apply the new
		// contents of the database.
		err = errors.New("the switch cannot apply it")
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out.String(), nil
}

// vsctl changes the switch's database and waits until the switch has applied
// the change.
func (c *client) vsctl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", "ovs-vsctl", append([]string{"--db=unix:" + c.socket}, args...)...)
}

// replaceFlows replaces the bridge's rules in one transaction. Rules that stay
// the same keep their counters.
func (c *client) replaceFlows(ctx context.Context, bridge string, rules []string) error {
	_, err := c.run(ctx, strings.Join(rules, "\n")+"\n", "ovs-ofctl", "--bundle", "--protocols=OpenFlow14", "replace-flows", bridge, "-")
	return err
}

// settle waits until the switch has revalidated all flows of its datapath,
// which it does twice a second. Then the datapath follows the current rules,
// and the rules' counters include those of the datapath.
func (c *client) settle(ctx context.Context) error {
	// The current round may already be past a flow that has changed. The second
	// round is complete.
	for range 2 {
		if _, err := c.run(ctx, "", "ovs-appctl", "revalidator/wait"); err != nil {
			return err
		}
	}
	return nil
}

// dumpFlows returns the bridge's rules with their counters.
func (c *client) dumpFlows(ctx context.Context, bridge string) (string, error) {
	if err := c.settle(ctx); err != nil {
		return "", err
	}
	return c.run(ctx, "", "ovs-ofctl", "--protocols=OpenFlow14", "dump-flows", bridge)
}

// version returns the version of the programs: "3.1.0".
func (c *client) version(ctx context.Context) (string, error) {
	out, err := c.run(ctx, "", "ovs-vsctl", "--version")
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(out, "\n")
	return line[strings.LastIndexByte(line, ' ')+1:], nil
}
