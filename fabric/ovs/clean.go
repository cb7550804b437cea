package ovs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/pidfd"
	"vitrine/internal/runstate"
)

// recordKind is the kind of the record "bridge", which a run keeps while it has
// a bridge in the user's switch. The record holds the path of the database
// server's socket.
const recordKind = "ovs-bridge"

// A Cleaner ends the switches of dead runs, and removes their bridges from the
// user's switches.
type Cleaner struct {
	Root string // the folder where runs are registered
}

var _ vitrine.Cleaner = Cleaner{}

// Clean ends the daemons of dead runs and undoes what the runs recorded. It
// finds the daemons by their command lines, which contain the run's folder.
func (c Cleaner) Clean(ctx context.Context) (removed []string, err error) {
	return runstate.EachDead(c.Root, func(run string) (removed []string, err error) {
		dir, err := filepath.Abs(folder(c.Root, run))
		if err != nil {
			return nil, err
		}
		ended, err := end(ctx, dir)
		for _, name := range ended {
			removed = append(removed, name+" of run "+run)
		}
		if err != nil {
			return removed, err
		}
		bridges, err := runstate.Undo(c.Root, run, recordKind, func(_ string, socket []byte) (string, error) {
			return unbridge(ctx, run, string(socket))
		})
		return append(removed, bridges...), err
	})
}

// end ends the daemons whose folder is dir and returns their names.
func end(ctx context.Context, dir string) ([]string, error) {
	names := map[int]string{}
	found, err := pidfd.Where(func(p procfs.Proc) bool {
		names[p.PID] = daemonOf(p, dir)
		return names[p.PID] != ""
	})
	if err != nil {
		return nil, err
	}
	defer found.Close()
	if err := found.End(ctx); err != nil {
		return nil, err
	}
	var ended []string
	for pid := range found {
		ended = append(ended, names[pid])
	}
	slices.Sort(ended)
	return ended, nil
}

// daemonOf returns the daemon's name if the process is a daemon with the folder
// dir, and "" otherwise.
func daemonOf(p procfs.Proc, dir string) string {
	args, err := p.CmdLine()
	if err != nil || len(args) == 0 {
		return "" // it has ended, or is a kernel thread
	}
	name := filepath.Base(args[0])
	if name != databaseName && name != switchName || !slices.Contains(args, "--pidfile="+filepath.Join(dir, name+".pid")) {
		return ""
	}
	return name
}

// unbridge removes a run's bridge and its interfaces from the user's switch at
// the socket. If the switch does not run any more, only interfaces are left to
// remove.
func unbridge(ctx context.Context, run, socket string) (removed string, err error) {
	runs, err := runsAt(ctx, socket)
	if err != nil {
		return "", err
	}
	if runs {
		client, err := newClient(socket)
		if err != nil {
			return "", err
		}
		if _, err := client.vsctl(ctx, "--if-exists", "del-br", bridgeOf(run)); err != nil {
			return "", err
		}
		removed = "bridge " + bridgeOf(run) + " of Open vSwitch"
	}
	links, err := segment.List(netlink.LinkList)
	if err != nil {
		return removed, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range links {
		if link.Type() == "veth" && strings.HasPrefix(link.Attrs().Name, "vt"+run) {
			err = errors.Join(err, netlink.LinkDel(link))
		}
	}
	return removed, err
}

// runsAt reports whether a process listens at a socket.
func runsAt(ctx context.Context, socket string) (bool, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, unix.EAGAIN): // its backlog is full
		return true, nil
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("finding out whether Open vSwitch runs: %w", err)
}

// Check reports whether this host supports ovs fabrics, and with which
// datapath. It starts no switch, because that would outlive a check that is
// killed.
func Check(ctx context.Context) []vitrine.Check {
	detail, err := possible(ctx)
	return []vitrine.Check{vitrine.NewCheck("ovs: Open vSwitch", detail, err)}
}

func possible(ctx context.Context) (string, error) {
	if _, err := newServer("", nil); err != nil {
		return "", err
	}
	client, err := newClient("")
	if err != nil {
		return "", err
	}
	version, err := client.version(ctx)
	if err != nil {
		return "", err
	}
	path, err := datapath(DatapathAuto)
	if err != nil {
		return "", err
	}
	if err := netns.Possible(); err != nil {
		return "", err
	}
	if path == DatapathNetdev {
		// The datapath in user space makes tap interfaces.
		tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
		if err != nil {
			return "", fmt.Errorf("opening a device that the datapath in user space needs: %w", err)
		}
		_ = tun.Close()
		return version + ", datapath netdev (in user space), because the kernel has none", nil
	}
	return version + ", datapath kernel", segment.Try(kind(), pair{})
}

// pair is a Wiring of veth pairs alone, to test whether the kernel supports
// them.
type pair struct{}

func (pair) Make(*segment.Segment) error                     { return nil }
func (pair) Join(s *segment.Segment, end *segment.End) error { return s.Pair(end, 0) }
func (pair) Cut(s *segment.Segment, end *segment.End) error  { return s.Unpair(end) }
