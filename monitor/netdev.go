package monitor

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"vitrine"
)

// netDev is /proc/net/dev, opened in an instance's network namespace: the open
// file stays with that namespace wherever it is read.
type netDev struct {
	*file
	why string // there is no file
}

func (d netDev) tells() []metric { return []metric{rx, tx} }

func (d netDev) read(buf []byte, t *total) error {
	data, err := d.file.read(buf)
	if err != nil {
		return err
	}
	received, sent, err := parseNetDev(data)
	if err != nil {
		return d.wrap(err)
	}
	// NaN before the first sample compares as false.
	if float64(received) < t[rx] || float64(sent) < t[tx] {
		return fmt.Errorf("%s: an interface was taken away, and its counters with it", d.path)
	}
	t[rx], t[tx] = float64(received), float64(sent)
	return nil
}

// openNetDevs opens the counters of all instances, on a thread of its own.
func openNetDevs(vantages []vitrine.Vantage) []netDev {
	devs := make([]netDev, len(vantages))
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		for i, v := range vantages {
			switch {
			case v.NetNS == "":
				devs[i].why = reason(v, vitrine.Network, "shares the host's network")
			case err != nil:
				devs[i].why = fmt.Sprintf("open this thread's network namespace: %v", err)
			default:
				devs[i] = openNetDev(v.NetNS)
			}
		}
		if err != nil {
			runtime.UnlockOSThread()
			return
		}
		// A thread that cannot go home must not run anything else: it stays
		// locked, and so ends with this goroutine.
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		unix.Close(home)
	}()
	<-done
	return devs
}

// openNetDev leaves the thread in the namespace.
func openNetDev(path string) netDev {
	ns, err := os.Open(path)
	if err != nil {
		return netDev{why: err.Error()}
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return netDev{why: fmt.Sprintf("enter network namespace %s: %v", path, err)}
	}
	f, err := openFile("/proc/thread-self/net/dev")
	if err != nil {
		return netDev{why: err.Error()}
	}
	f.path = path + " /proc/net/dev"
	return netDev{file: f}
}
