package monitor

import (
	"fmt"

	"vitrine"
	"vitrine/internal/netns"
)

// netDev is /proc/net/dev, opened in an instance's network namespace. The open file stays bound to
// that namespace, whichever thread reads it.
type netDev struct {
	*file
	only string // interface; empty: all but lo
	why  string // why there is no file
}

func (d netDev) provides() []metric { return []metric{rx, tx} }

func (d netDev) read(buf []byte, t *total) error {
	data, err := d.file.read(buf)
	if err != nil {
		return err
	}
	received, sent, err := parseNetDev(data, d.only)
	if err != nil {
		return d.wrap(err)
	}
	// A comparison with NaN, before the first sample, is false.
	if float64(received) < t[rx] || float64(sent) < t[tx] {
		return fmt.Errorf("%s: an interface was removed together with its counters", d.path)
	}
	t[rx], t[tx] = float64(received), float64(sent)
	return nil
}

// openNetDev opens an instance's counters. If it cannot, why holds the reason.
func openNetDev(v vitrine.Vantage) (d netDev) {
	if v.NetNS == "" {
		return netDev{why: reason(v, vitrine.Network, "shares the host's network")}
	}
	d.only = v.Interface
	err := netns.Do(v.NetNS, func() (err error) {
		d.file, err = openFile("/proc/thread-self/net/dev")
		return err
	})
	if err != nil {
		return netDev{why: err.Error()}
	}
	d.path = v.NetNS + ": /proc/net/dev"
	return d
}
