// Package ovs wires instances by Open vSwitch. It uses the kernel datapath
// where the host has it, else the datapath in user space. It starts a database
// server and a switch of the run's own, in the run's namespace and folder. So
// no other switch of the host is touched, and no two runs meet. It uses a
// switch of the user's only if the user names it.
package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Datapaths, by the names in Config.
const (
	DatapathAuto   = "auto"   // the kernel's if it has one, else netdev
	DatapathKernel = "kernel" // Open vSwitch calls it system
	DatapathNetdev = "netdev" // in user space, in the daemon
)

// How the datapath in user space reads and writes interfaces.
const (
	PortsSocket = "socket" // packet sockets, by the daemon's main thread
	PortsAFXDP  = "afxdp"  // AF_XDP, by polling threads that take all of their CPUs
)

// How the bridge decides where a frame goes.
const (
	RulesNormal = "normal" // by MAC addresses that the switch learns
	RulesFlows  = "flows"  // by a rule with counters for each ordered pair of instances
)

// Config is the part servers.ovs of a deployment.
type Config struct {
	segment.Options `yaml:",inline"`
	// Datapath is auto (the default: the kernel's if it has one, else netdev),
	// kernel, or netdev, which is in user space.
	Datapath string `yaml:"datapath,omitempty" json:"datapath,omitempty" jsonschema:"enum=auto,enum=kernel,enum=netdev"`
	// Ports is how the datapath netdev reaches interfaces: socket (the default),
	// or afxdp, which polls and takes all of the CPUs that it is given.
	Ports string `yaml:"ports,omitempty" json:"ports,omitempty" jsonschema:"enum=socket,enum=afxdp"`
	// Rules is how the bridge decides where frames go: normal (the default), by
	// MAC addresses that the switch learns, or flows, by a rule for each pair of
	// instances, whose counters can be read.
	Rules string `yaml:"rules,omitempty" json:"rules,omitempty" jsonschema:"enum=normal,enum=flows"`
	// CPUs are the CPUs that the switch's threads run on; the default is all CPUs
	// of the run.
	CPUs document.CPUs `yaml:"cpus,omitempty" json:"cpus,omitempty"`
	// Server is the socket of a running database server, such as
	// /run/openvswitch/db.sock, whose switch is used. The default is to start
	// both.
	Server string `yaml:"server,omitempty" json:"server,omitempty"`

	Run     *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired
	RunCPUs document.CPUs `yaml:"-" json:"-"` // CPUs of the run; empty: those of the calling thread
	Logger  *slog.Logger  `yaml:"-" json:"-"` // nil: none
}

// A Fabric is one bridge of Open vSwitch.
type Fabric struct {
	*segment.Segment
	config   Config
	bridge   string // its name
	datapath string // DatapathKernel or DatapathNetdev
	version  string // of Open vSwitch: "3.1.0"
	client   *client
	server   *server         // nil: the switch is the user's
	host     *netlink.Handle // in this process's namespace; nil: the switch is the run's own

	installing sync.Mutex // held while rules are installed

	mu      sync.Mutex
	ports   map[string]port // by instance
	chain   []string        // instances, in order
	mirrors map[[2]string]bool
}

var (
	_ fabric.Mirrorer = (*Fabric)(nil)
	_ fabric.Ender    = (*Fabric)(nil)
)

// A port is the port of an instance at the bridge.
type port struct {
	number int    // of the OpenFlow port
	name   string // of the interface
	mac    string // of the instance's interface
}

func kind() segment.Kind {
	return segment.Kind{Name: "ovs", Needs: "CONFIG_VETH, CONFIG_TUN", Do: "modprobe veth tun openvswitch, or use the fabric bridge"}
}

// New starts the switch and makes the bridge. If Open vSwitch is not installed,
// or the kernel lacks what the options need, the error is a
// *vitrine.Unsupported.
func New(ctx context.Context, config Config) (*Fabric, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Fabric{config: config, ports: make(map[string]port), mirrors: make(map[[2]string]bool)}
	if err := f.resolve(); err != nil {
		return nil, err
	}
	if err := f.connect(ctx); err != nil {
		return nil, fmt.Errorf("making the ovs fabric: %w", err)
	}
	s, err := segment.New(segment.Config{Run: config.Run, Kind: kind(), Options: config.Options, Outward: config.Server != ""}, &wiring{f, ctx})
	if err != nil {
		f.closeHost()
		return nil, err
	}
	f.Segment = s
	config.Logger.Info("Open vSwitch", "version", f.version, "datapath", f.datapath, "ports", f.config.Ports, "rules", f.config.Rules, "bridge", f.bridge, "cpus", f.server.affinity().String())
	return f, nil
}

// resolve checks the options and fills in the defaults.
func (f *Fabric) resolve() error {
	c := &f.config
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "fabric ovs", Found: found, Want: want}
	}
	for _, o := range []struct {
		name  string
		value *string
		list  []string
	}{
		{"datapath", &c.Datapath, []string{DatapathAuto, DatapathKernel, DatapathNetdev}},
		{"ports", &c.Ports, []string{PortsSocket, PortsAFXDP}},
		{"rules", &c.Rules, []string{RulesNormal, RulesFlows}},
	} {
		if err := choose(o.value, o.list); err != nil {
			return bad(o.name+": "+*o.value, err.Error())
		}
	}
	if c.Server != "" && len(c.CPUs) > 0 {
		return bad("cpus together with server", "no cpus: Vitrine does not change the CPUs of your switch")
	}
	if c.Ports == PortsAFXDP {
		switch {
		case c.Server != "":
			return bad("ports: afxdp together with server", "only one of them: Vitrine does not add polling threads to your switch")
		case len(c.CPUs) == 0:
			return bad("ports: afxdp without cpus", "cpus for the polling threads, which use them fully")
		case c.Datapath == DatapathKernel:
			return bad("ports: afxdp with datapath: kernel", "datapath: netdev")
		}
		c.Datapath = DatapathNetdev
	}
	var err error
	f.datapath, err = datapath(c.Datapath)
	return err
}

// choose sets an empty value to the first of the list. Any other value must be
// in the list.
func choose(value *string, list []string) error {
	if *value == "" {
		*value = list[0]
	}
	if slices.Contains(list, *value) {
		return nil
	}
	return fmt.Errorf("want one of %q", list)
}

// datapath resolves auto, and refuses the kernel datapath if the kernel has
// none. The lookup makes the kernel load the module, if there is one.
func datapath(asked string) (string, error) {
	if asked == DatapathNetdev {
		return DatapathNetdev, nil
	}
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	switch {
	case err == nil:
		return DatapathKernel, nil
	case asked == DatapathKernel:
		return "", &vitrine.Unsupported{
			What: "the kernel datapath of Open vSwitch", Missing: "the kernel option CONFIG_OPENVSWITCH: " + err.Error(),
			Do: "modprobe openvswitch, or use datapath: netdev",
		}
	}
	return DatapathNetdev, nil
}

// connect finds the programs and the socket of the switch, which need not run
// yet.
func (f *Fabric) connect(ctx context.Context) (err error) {
	run := f.config.Run
	if f.config.Server != "" {
		if _, err := os.Stat(f.config.Server); err != nil {
			return &vitrine.BadInput{File: "fabric ovs", Found: "server: " + f.config.Server + ": " + err.Error(), Want: "the socket of a running ovsdb-server"}
		}
		if f.client, err = newClient(f.config.Server); err != nil {
			return err
		}
		// The user's switch and its ports are in this process's namespace.
		if f.host, err = segment.Host(); err != nil {
			return err
		}
		f.bridge = bridgeOf(run.ID)
	} else {
		dir, err := filepath.Abs(folder(run.Root, run.ID))
		if err != nil {
			return err
		}
		if f.server, err = newServer(dir, f.config.CPUs); err != nil {
			return err
		}
		f.server.runCPUs = f.config.RunCPUs
		if f.client, err = newClient(f.server.socket()); err != nil {
			return err
		}
		f.bridge = "br0"
	}
	f.version, err = f.client.version(ctx)
	return err
}

// bridgeOf returns the name of a run's bridge in the user's switch.
func bridgeOf(run string) string { return "vt-" + run }

// Datapath returns the datapath in use: DatapathKernel or DatapathNetdev.
func (f *Fabric) Datapath() string { return f.datapath }

// Describe describes the switch and its options, for the record.
func (f *Fabric) Describe() string {
	s := "Open vSwitch " + f.version + ", datapath " + f.datapath
	if f.datapath == DatapathNetdev {
		s += ", ports by " + f.config.Ports + ", TX checksums of instances not offloaded"
	}
	if cpus := f.server.affinity(); len(cpus) > 0 {
		s += ", on CPUs " + cpus.String()
	}
	return s + ", rules " + f.config.Rules
}

// Version describes the switch that a fabric with these options has, for the
// record.
func Version(ctx context.Context, config Config) (string, error) {
	f := &Fabric{config: config}
	if config.Server == "" {
		f.server = &server{cpus: config.CPUs, runCPUs: config.RunCPUs}
	}
	if err := f.resolve(); err != nil {
		return "", err
	}
	client, err := newClient(config.Server)
	if err != nil {
		return "", err
	}
	if f.version, err = client.version(ctx); err != nil {
		return "", err
	}
	return f.Describe(), nil
}

// Ended returns an error if a daemon of the run's own switch has ended, with the
// daemon's last output.
func (f *Fabric) Ended() error { return f.server.ended() }

// wiring is the bridge, with a veth pair for each instance.
type wiring struct {
	*Fabric
	starting context.Context // bounds Make
}

// Make starts the switch, unless it is the user's, and makes the bridge.
func (w *wiring) Make(s *segment.Segment) error {
	if err := w.make(s); err != nil {
		return errors.Join(err, w.Unmake(s))
	}
	return nil
}

func (w *wiring) make(s *segment.Segment) (err error) {
	ctx := w.starting
	external := "external_ids:vitrine=" + w.config.Run.ID
	if w.server != nil {
		if err := w.server.start(ctx, s.Path(), w.client); err != nil {
			return err
		}
	} else {
		// The record comes first: if the run dies later, cleaning removes the bridge
		// by it.
		if err := w.config.Run.Record(recordKind, "bridge", []byte(w.config.Server)); err != nil {
			return err
		}
	}
	datapath := "datapath_type=netdev"
	if w.datapath == DatapathKernel {
		datapath = "datapath_type=system"
	}
	_, err = w.client.vsctl(ctx, "add-br", w.bridge, "--", "set", "Bridge", w.bridge, datapath, "fail_mode=secure", external)
	if err != nil {
		return w.server.explain(err)
	}
	return w.install(ctx)
}

// Unmake removes the bridge from the user's switch, or ends the run's own
// switch.
func (w *wiring) Unmake(*segment.Segment) error {
	ctx, cancel := changeContext()
	defer cancel()
	if w.server != nil {
		return w.server.stop(ctx)
	}
	if _, err := w.client.vsctl(ctx, "--if-exists", "del-br", w.bridge); err != nil {
		return err
	}
	w.closeHost()
	return w.config.Run.Erase(recordKind, "bridge")
}

// closeHost closes the netlink handle of this process's namespace. Idempotent.
func (f *Fabric) closeHost() {
	if f.host != nil {
		f.host.Close()
	}
}
