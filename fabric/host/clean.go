package host

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// A Cleaner removes addresses and routes that dead runs added to the host.
type Cleaner struct {
	Root string // the folder where runs are registered
}

var _ vitrine.Cleaner = Cleaner{}

// Clean removes the addresses and routes from the calling thread's network
// namespace.
func (c Cleaner) Clean(context.Context) (removed []string, err error) {
	links, err := segment.Host()
	if err != nil {
		return nil, err
	}
	defer links.Close()
	return runstate.EachDead(c.Root, func(run string) ([]string, error) {
		return runstate.Undo(c.Root, run, recordKind, func(_ string, record []byte) (string, error) {
			var m addition
			if err := json.Unmarshal(record, &m); err != nil {
				return "", err
			}
			if err := m.remove(links); err != nil {
				return "", err
			}
			return m.String() + ", of run " + run, nil
		})
	})
}

// Check reports which interfaces instances can share, and whether addresses can
// be added to them.
func Check(context.Context) []vitrine.Check {
	names, err := upNames()
	shared := vitrine.NewCheck("host: interfaces", strings.Join(names, " "), err)
	added := vitrine.Check{Name: "host: adding addresses", OK: true, Detail: "`first` can be given"}
	if !mayAdminister() {
		added.OK, added.Detail, added.Missing = false, "", "the privilege (CAP_NET_ADMIN): instances can only use the addresses of the interface"
	}
	return []vitrine.Check{shared, added}
}

// upNames returns the names of the interfaces that are up.
func upNames() (names []string, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range links {
		if link.Flags&net.FlagUp != 0 {
			names = append(names, link.Name)
		}
	}
	return names, nil
}

// mayAdminister reports whether this thread has CAP_NET_ADMIN.
func mayAdminister() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}
