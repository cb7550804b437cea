package impair

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/pidfd"
	"vitrine/internal/runstate"
)

// A Cleaner removes what dead runs left of impaired links. It must run before
// the Cleaners of fabrics, because it gives back the fabrics' interfaces.
type Cleaner struct {
	Root string // the folder where runs are registered
}

var _ vitrine.Cleaner = Cleaner{}

// Clean removes the emulators' namespaces. Before that it ends emulators and
// gives lent interfaces back to the host.
func (c Cleaner) Clean(ctx context.Context) (removed []string, err error) {
	return runstate.EachDead(c.Root, func(run string) (removed []string, err error) {
		if of, absent := os.Stat(netns.Path(middle(run))); absent == nil {
			// An interface that was not released would end with the namespace.
			if err = errors.Join(end(ctx, of), release(run)); err == nil {
				err = netns.Delete(middle(run))
			}
			if err == nil {
				removed = append(removed, "network namespace "+middle(run))
			}
		}
		return removed, err
	})
}

// end kills the emulator of a namespace. Normally an emulator ends with the
// program that started it, because its stdin ends. But an emulator that was
// just being stopped (SIGSTOP) when that program died may be left.
func end(ctx context.Context, of os.FileInfo) error {
	found, err := pidfd.Where(func(p procfs.Proc) bool {
		args, err := p.CmdLine()
		if err != nil || len(args) == 0 || args[len(args)-1] != Verb {
			return false
		}
		its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", p.PID))
		return err == nil && os.SameFile(its, of)
	})
	if err != nil {
		return err
	}
	defer found.Close()
	return found.End(ctx)
}

// release moves the host's interfaces that the fabric had lent to an instance
// back to the host, where the fabric's cleaning finds them. It recognises them
// by the mark of segment.Lender. Without release, virtual interfaces would be
// removed with the namespace.
func release(run string) error {
	here, err := segment.OpenHere()
	if err != nil {
		return err
	}
	defer here.Close()
	return netns.Do(netns.Path(middle(run)), func() error {
		links, err := segment.List(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("listing interfaces: %w", err)
		}
		for _, link := range links {
			if isLent(run, link.Attrs().Alias) {
				if err := giveBack(link, here); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// isLent reports whether the alias of an interface is a mark of segment.Lender.
func isLent(run, alias string) bool { return strings.HasPrefix(alias, "vitrine "+run+" ") }

// giveBack moves an interface of the thread's namespace to the host's, which is
// here.
func giveBack(link netlink.Link, here *os.File) error {
	// The name is unique only in this namespace: two runs may both call an interface o1. The new name
	// has the run in it, and at most the kernel's 15 bytes. The fabric's cleaning finds the interface
	// by its mark.
	unique := fmt.Sprintf("vt%so%d", strings.Fields(link.Attrs().Alias)[1], link.Attrs().Index%10_000)
	if err := errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, unique)); err != nil {
		return fmt.Errorf("naming interface %s (%s) for its way back: %w", link.Attrs().Name, link.Attrs().Alias, err)
	}
	if err := netlink.LinkSetNsFd(link, int(here.Fd())); err != nil {
		return fmt.Errorf("moving interface %s (%s) back to the host: %w", link.Attrs().Name, link.Attrs().Alias, err)
	}
	return nil
}

// Check reports whether this host can impair links. It tries in a temporary
// namespace.
func Check(context.Context) []vitrine.Check {
	err := netns.Try(func() error {
		s, err := openSocket("lo")
		if err != nil {
			return err
		}
		return s.Close()
	})
	detail := "by an emulator on packet sockets"
	if hasNetem() == nil {
		detail = "by netem; jitter and rate by an emulator on packet sockets"
	}
	return []vitrine.Check{vitrine.NewCheck("impair: delay, loss and rate", detail, unsupported(err))}
}
