package ovs

import (
	"context"
	"path/filepath"
	"testing"

	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/mirror/mirrortest"
	"vitrine/internal/hosttest"
)

// A place is an attached instance.
type place struct {
	mirrortest.Place
	name string
}

// open makes a fabric for the duration of the test.
func open(t *testing.T, c Config) *Fabric {
	t.Helper()
	c.Run = fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	f, err := New(t.Context(), c)
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return f.Close(context.Background()) })
	return f
}

func attach(t *testing.T, f *Fabric, names ...string) []place {
	t.Helper()
	var places []place
	for _, name := range names {
		path := fabrictest.Place(t, f.config.Run.ID, name)
		end, err := f.Attach(t.Context(), fabric.Port{Instance: name, NetNS: path})
		mirrortest.Must(t, err)
		places = append(places, place{mirrortest.Place{NetNS: path, Addr: end.Addr}, name})
	}
	return places
}
