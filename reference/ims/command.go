package ims

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"vitrine"
)

// A Command is the command line of one component.
type Command struct {
	*pflag.FlagSet

	name string
}

// NewCommand starts the command line of a component; about says in one line
// what it is.
func NewCommand(name, about string, stdout io.Writer) *Command {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(io.Discard)
	flags.Usage = func() {
		fmt.Fprintf(stdout, "%s\n\nUsage: vitrine reference %s FLAGS\n\n%s", about, name, flags.FlagUsages())
	}
	return &Command{FlagSet: flags, name: name}
}

// ErrHelp is returned by Parse after it has printed the help that was asked for.
var ErrHelp = pflag.ErrHelp

// Parse reads the arguments. The error is ErrHelp or a *vitrine.BadInput.
func (c *Command) Parse(args []string) error {
	err := c.FlagSet.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return ErrHelp
	case err != nil:
		return c.Bad(err.Error(), "run with --help to see the flags")
	case c.NArg() > 0:
		return c.Bad(fmt.Sprintf("argument %q", c.Arg(0)), "only flags are taken")
	}
	return nil
}

// Bad is the error of a command line that the user must mend.
func (c *Command) Bad(found, want string) error {
	return &vitrine.BadInput{File: "vitrine reference " + c.name, Found: found, Want: want}
}

// Addr reads the address in a flag; a zero one when the flag is empty and need
// not be given.
func (c *Command) Addr(flag string, required bool) (netip.AddrPort, error) {
	text := c.Lookup(flag).Value.String()
	if text == "" && !required {
		return netip.AddrPort{}, nil
	}
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return addr, c.Bad(fmt.Sprintf("--%s %q", flag, text), "want IP:PORT, such as 127.0.0.1:5060")
	}
	return addr, nil
}

// Addrs reads the comma-separated addresses in a flag, in their order and
// without repetition.
func (c *Command) Addrs(flag string, required bool) ([]netip.AddrPort, error) {
	text := c.Lookup(flag).Value.String()
	var addrs []netip.AddrPort
	seen := map[netip.AddrPort]bool{}
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		addr, err := netip.ParseAddrPort(field)
		if err != nil {
			return nil, c.Bad(fmt.Sprintf("--%s %q", flag, field), "want IP:PORT,IP:PORT,...")
		}
		if !seen[addr] {
			seen[addr] = true
			addrs = append(addrs, addr)
		}
	}
	if required && len(addrs) == 0 {
		return nil, c.Bad("--"+flag+" is empty", "want at least one IP:PORT")
	}
	return addrs, nil
}

// Positive checks that the durations and counts in the flags named are above 0.
func (c *Command) Positive(flags ...string) error {
	for _, name := range flags {
		f := c.Lookup(name)
		var ok bool
		switch f.Value.Type() {
		case "duration":
			d, err := time.ParseDuration(f.Value.String())
			ok = err == nil && d > 0
		default:
			var v float64
			_, err := fmt.Sscan(f.Value.String(), &v)
			ok = err == nil && v > 0
		}
		if !ok {
			return c.Bad(fmt.Sprintf("--%s %s", name, f.Value), "want more than 0")
		}
	}
	return nil
}

// ListenError names the flag to change when an address could not be bound.
func ListenError(flag string, addr netip.AddrPort, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: the port is in use: stop what uses it or choose another --%s: %w", addr, flag, err)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("listen on %s: this host has no such address: choose another --%s: %w", addr, flag, err)
	}
	return fmt.Errorf("listen on %s (--%s): %w", addr, flag, err)
}

// Closed says whether a server ended because its socket was closed on purpose.
func Closed(err error) bool {
	return err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed)
}

// A Cluster is an instance's address among those of all instances of its kind.
type Cluster struct {
	Self  netip.AddrPort // zero: alone
	Peers []netip.AddrPort
}

// Cluster reads --self and --peers. Without peers the instance is alone.
func (c *Command) Cluster() (Cluster, error) {
	self, err := c.Addr("self", false)
	if err != nil {
		return Cluster{}, err
	}
	peers, err := c.Addrs("peers", false)
	if err != nil {
		return Cluster{}, err
	}
	switch {
	case len(peers) == 0 && !self.IsValid():
		return Cluster{}, nil
	case len(peers) == 0:
		return Cluster{}, c.Bad("--self without --peers", "give the addresses of all instances, this one included")
	case !self.IsValid():
		return Cluster{}, c.Bad("--peers without --self", "say which of them this instance is")
	}
	for _, p := range peers {
		if p == self {
			return Cluster{Self: self, Peers: peers}, nil
		}
	}
	return Cluster{}, c.Bad(fmt.Sprintf("--self %s is not among --peers %s", self, c.Lookup("peers").Value), "give the addresses of all instances, this one included")
}
