package ims

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/common/expfmt"
	"github.com/spf13/pflag"

	"vitrine"
	"vitrine/internal/repeat"
	"vitrine/internal/truth"
)

// A Command is the command line of one component, with the logger and counters
// that every component has.
type Command struct {
	*pflag.FlagSet
	Log      *slog.Logger
	Registry *prometheus.Registry // counters that --metrics serves
	Metrics  netip.AddrPort       // zero: the counters are not served
	Messages *truth.Log           // nil: --messages is not given

	// Connected reports whether the component is connected to all components that it
	// depends on; nil: it depends on none.
	Connected func() bool

	name   string
	stdout io.Writer
	print  bool           // print the counters at the end
	checks []func() error // checks of the flags' values
}

// NewCommand returns the command line of a component. about describes the
// component in one line.
func NewCommand(name, about string, stdout, stderr io.Writer) *Command {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(io.Discard)
	flags.Usage = func() {
		fmt.Fprintf(stdout, "%s\n\nUsage: vitrine reference %s FLAGS\n\n%s", about, name, flags.FlagUsages())
	}
	return &Command{
		FlagSet: flags, Log: slog.New(repeat.Limit(slog.NewTextHandler(stderr, nil))), Registry: prometheus.NewRegistry(),
		name: name, stdout: stdout,
	}
}

// Parse parses and checks the arguments. help is true if it has printed the help.
// The error is a *vitrine.BadInput.
func (c *Command) Parse(args []string) (help bool, err error) {
	c.Addr(&c.Metrics, "metrics", false, "serve counters over HTTP at IP:PORT/metrics, and at /ready whether it is connected to what it needs")
	c.BoolVar(&c.print, "print-counters", false, "print the counters at the end")
	err = c.FlagSet.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return true, nil
	case err != nil:
		return false, c.Bad(err.Error(), "run with --help to see the flags")
	case c.NArg() > 0:
		return false, c.Bad(fmt.Sprintf("argument %q", c.Arg(0)), "want flags only")
	}
	for _, check := range c.checks {
		if err := check(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// Bad returns the error for a command line that the user must correct.
func (c *Command) Bad(found, want string) error {
	return &vitrine.BadInput{File: "vitrine reference " + c.name, Found: found, Want: want}
}

// Ready prints on standard output that the component serves the address.
func (c *Command) Ready(at fmt.Stringer) { fmt.Fprintf(c.stdout, "%s: ready on %s\n", c.name, at) }

// End prints the counters on standard output, in the Prometheus text format, if
// --print-counters is set. It closes the log of messages.
func (c *Command) End() error {
	if err := c.Messages.Close(); err != nil || !c.print {
		return err
	}
	families, err := c.Registry.Gather()
	if err != nil {
		return fmt.Errorf("gather the counters: %w", err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(c.stdout, f); err != nil {
			return fmt.Errorf("print the counters: %w", err)
		}
	}
	return nil
}

// Counters returns a function that registers counters named PREFIX_NAME_total.
func Counters(registry prometheus.Registerer, prefix string) func(name, help string) prometheus.Counter {
	return func(name, help string) prometheus.Counter {
		return promauto.With(registry).NewCounter(prometheus.CounterOpts{Name: prefix + "_" + name + "_total", Help: help})
	}
}

// Gauges returns a function that registers gauges named PREFIX_NAME.
func Gauges(registry prometheus.Registerer, prefix string) func(name, help string, value func() float64) {
	return func(name, help string, value func() float64) {
		promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "_" + name, Help: help}, value)
	}
}

// Addr declares a flag for an address. If the flag is optional and empty, the
// address stays zero.
func (c *Command) Addr(addr *netip.AddrPort, flag string, required bool, usage string) {
	text := c.String(flag, "", usage)
	c.checks = append(c.checks, func() (err error) {
		if *text == "" && !required {
			return nil
		}
		if *addr, err = netip.ParseAddrPort(*text); err != nil {
			return c.Bad(fmt.Sprintf("--%s %q", flag, *text), "want IP:PORT, such as 127.0.0.1:5060")
		}
		return nil
	})
}

// Own declares a required flag for an address of this host that the component's messages carry.
func (c *Command) Own(addr *netip.AddrPort, flag, usage string) {
	c.Addr(addr, flag, true, usage)
	c.checks = append(c.checks, func() error {
		if addr.Addr().Unmap().IsUnspecified() {
			return c.Bad(fmt.Sprintf("--%s %s", flag, addr), "want one of the host's addresses, because messages carry it")
		}
		return nil
	})
}

// Addrs declares a flag for comma-separated addresses. It keeps their order and
// drops repetitions.
func (c *Command) Addrs(addrs *[]netip.AddrPort, flag string, required bool, usage string) {
	text := c.String(flag, "", usage)
	c.checks = append(c.checks, func() error {
		for field := range strings.SplitSeq(*text, ",") {
			field = strings.TrimSpace(field)
			if field == "" {
				continue
			}
			addr, err := netip.ParseAddrPort(field)
			if err != nil {
				return c.Bad(fmt.Sprintf("--%s %q", flag, field), "want IP:PORT,IP:PORT,...")
			}
			if !slices.Contains(*addrs, addr) {
				*addrs = append(*addrs, addr)
			}
		}
		if required && len(*addrs) == 0 {
			return c.Bad("--"+flag+" is empty", "want at least one IP:PORT")
		}
		return nil
	})
}

// LogMessages declares --messages.
func (c *Command) LogMessages() {
	path := c.String("messages", "", "file for a line about each message sent or received, with the event that it belongs to (docs/affinity.md)")
	c.checks = append(c.checks, func() (err error) {
		c.Messages, err = truth.Open(*path, c.name)
		return err
	})
}

// OneOf declares a flag that accepts one of the values; the first is the default.
func (c *Command) OneOf(into *string, flag string, values []string, usage string) {
	c.StringVar(into, flag, values[0], usage+": "+strings.Join(values, ", "))
	c.checks = append(c.checks, func() error {
		if !slices.Contains(values, *into) {
			return c.Bad(fmt.Sprintf("--%s %q", flag, *into), "want one of "+strings.Join(values, ", "))
		}
		return nil
	})
}

// Positive makes Parse check that the named flags, durations or counts, are above
// 0.
func (c *Command) Positive(flags ...string) {
	c.checks = append(c.checks, func() error { return c.positive(flags) })
}

func (c *Command) positive(flags []string) error {
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

// Listen listens on the TCP address given in a flag. It returns nil if addr is
// zero.
func Listen(ctx context.Context, flag string, addr netip.AddrPort) (net.Listener, error) {
	if !addr.IsValid() {
		return nil, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr.String())
	if err != nil {
		return nil, ListenError(flag, addr, err)
	}
	return listener, nil
}

// ListenError returns the error for an address that could not be bound. It names
// the flag to change.
func ListenError(flag string, addr netip.AddrPort, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: the port is in use: stop what uses it or choose another --%s: %w", addr, flag, err)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("listen on %s: this host has no such address: choose another --%s: %w", addr, flag, err)
	}
	return fmt.Errorf("listen on %s (--%s): %w", addr, flag, err)
}

// A Cluster holds an instance's own address and the addresses of all instances of
// its kind.
type Cluster struct {
	Self  netip.AddrPort // zero if the instance is alone
	Peers []netip.AddrPort
}

// Cluster declares --self and --peers. kind is the name of the instances in the
// help. Without peers the instance is alone.
func (c *Command) Cluster(of *Cluster, kind string) {
	c.Addr(&of.Self, "self", false, "address for the other "+kind+", as in --peers: IP:PORT")
	c.Addrs(&of.Peers, "peers", false, "all "+kind+", this one included: IP:PORT,IP:PORT,...")
	c.checks = append(c.checks, func() error {
		switch clustered := len(of.Peers) > 0; {
		case !clustered && of.Self.IsValid():
			return c.Bad("--self without --peers", "give the addresses of all instances, this one included")
		case clustered && !of.Self.IsValid():
			return c.Bad("--peers without --self", "give the address of this instance among them")
		case clustered && !slices.Contains(of.Peers, of.Self):
			return c.Bad(fmt.Sprintf("--self %s is not among --peers %s", of.Self, c.Lookup("peers").Value), "give the addresses of all instances, this one included")
		}
		return nil
	})
}
