package impair

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"vitrine/internal/netns"
	"vitrine/internal/pidfd"
	"vitrine/internal/runs"
	"vitrine/substrate"
)

// An emulator ends with the program that started it, for then its stdin does.
// One that cannot, as when it is stopped, is found by a record of the run.
const (
	recordKind = "impair"
	recordName = "emulator"
)

// record notes the emulator's process.
func record(run *runs.Run, pid int) error {
	since, err := started(pid)
	if err != nil {
		return err
	}
	return run.Record(recordKind, recordName, fmt.Appendf(nil, "%d %d", pid, since))
}

// started is when a process began, in the kernel's ticks since boot, which with
// its number tells it from all others.
func started(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("looking for process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	return stat.Starttime, nil
}

// A Cleaner removes what is left of impaired links of dead runs.
type Cleaner struct {
	Root string // where runs are known
}

var _ substrate.Cleaner = Cleaner{}

// Clean ends emulators that did not end, and removes their namespaces.
func (c Cleaner) Clean(ctx context.Context) (removed []string, err error) {
	dead, err := runs.Dead(c.Root)
	if err != nil {
		return nil, err
	}
	for _, run := range dead {
		records, err := runs.Records(c.Root, run, recordKind)
		if err != nil {
			return removed, err
		}
		for name, value := range records {
			ended, err := end(ctx, string(value))
			if err == nil {
				err = runs.Erase(c.Root, run, recordKind, name)
			}
			if err != nil {
				return removed, fmt.Errorf("ending the link emulator of run %s: %w", run, err)
			}
			if ended {
				removed = append(removed, "link emulator of run "+run)
			}
		}
		if _, err := os.Stat(netns.Path(middle(run))); err != nil {
			continue
		}
		if err := netns.Delete(middle(run)); err != nil {
			return removed, err
		}
		removed = append(removed, "network namespace "+middle(run))
	}
	return removed, nil
}

// end kills the process of a record, when it still is.
func end(ctx context.Context, value string) (ended bool, err error) {
	first, second, _ := strings.Cut(value, " ")
	pid, err := strconv.Atoi(first)
	since, err2 := strconv.ParseUint(second, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return false, fmt.Errorf("reading its record: %w", err)
	}
	set := make(pidfd.Set)
	defer set.Close()
	if err := set.Add(pid); err != nil {
		return false, err
	}
	// Looked at once the descriptor stands for it: the number cannot pass on now.
	if began, err := started(pid); err != nil || began != since {
		return false, nil
	}
	if err := set.Kill(); err != nil {
		return false, err
	}
	return true, set.Wait(ctx)
}

// Check says whether this host can have impaired links. It tries, in a
// namespace that is gone at once.
func Check(context.Context) []substrate.Check {
	c := substrate.Check{Name: "impair: delay, loss and rate", OK: true, Detail: "by packet sockets, on links of any fabric with network namespaces"}
	err := netns.Try(func() error {
		s, err := openSocket("lo")
		if err != nil {
			return err
		}
		return s.close()
	})
	if err = unsupported(err); err != nil {
		c.OK, c.Detail, c.Missing = false, "", err.Error()
	}
	return []substrate.Check{c}
}
