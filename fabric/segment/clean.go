package segment

import (
	"context"
	"os"

	"vitrine"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// A Cleaner removes the segments of dead runs, of every kind of fabric.
type Cleaner struct {
	Root string // the folder where runs are registered
}

var _ vitrine.Cleaner = Cleaner{}

// Clean puts back the interfaces that dead runs took from the host. Then it
// removes the namespaces of their fabrics, with everything in them. Clean must
// run before the cleaning of substrates, which removes the namespaces that hold
// the interfaces.
func (c Cleaner) Clean(context.Context) (removed []string, err error) {
	return runstate.EachDead(c.Root, func(run string) ([]string, error) {
		removed, err := runstate.Undo(c.Root, run, recordKind, putBackDead(run))
		if _, absent := os.Stat(netns.Path(Name(run))); err != nil || absent != nil {
			return removed, err
		}
		if err := netns.Delete(Name(run)); err != nil {
			return removed, err
		}
		return append(removed, "network namespace "+Name(run)), nil
	})
}

// Check reports whether this host supports a kind of fabric. It tries this in a
// temporary namespace. detail is the text for a host that does.
func Check(kind Kind, wiring Wiring, name, detail string) vitrine.Check {
	return vitrine.NewCheck(kind.Name+": "+name, detail, Try(kind, wiring))
}

// Try makes a segment of a kind with one instance, in a temporary namespace. If
// the kernel lacks something, the error is a *vitrine.Unsupported.
func Try(kind Kind, wiring Wiring) error {
	s := &Segment{Config: Config{Kind: kind}, wiring: wiring}
	if err := s.resolve(); err != nil {
		return err
	}
	return kind.Explain(netns.Try(s.try))
}

// try makes the segment, with one end in the calling thread's namespace.
func (s *Segment) try() error {
	defer func() {
		if s.Links != nil {
			s.Links.Close()
		}
	}()
	if err := s.make(); err != nil {
		return err
	}
	here, err := OpenHere()
	if err != nil {
		return err
	}
	defer here.Close()
	return s.wiring.Join(s, &End{NS: int(here.Fd()), Outer: "p1", Inner: Inside})
}
