package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"

	"vitrine/affinity/capture"
	"vitrine/affinity/message"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
)

// analyseLive starts a live analysis at the interface of a place, and a tcpdump there. The
// returned function ends both. It checks that the result equals the analysis of the
// recorded capture and of tcpdump's capture.
func (s *site) analyseLive(name string) (compare func()) {
	s.t.Helper()
	at := s.places[name]
	stop, end := context.WithCancel(context.Background())
	keep := &capture.Recorder{Name: filepath.Join(s.dir, name+".pcapng")}
	var live *analysis
	var err error
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err = netns.Do(at.netns, func() (err error) {
			live, err = analyseBy(func(handle func(*message.Message) error) (*message.Summary, error) {
				o := capture.LiveOptions{Interfaces: []string{segment.Inside}, Keep: keep}
				return message.ReadLive(context.Background(), stop, o, message.Options{}, func() { close(began) }, handle)
			})
			return err
		})
	}()
	s.t.Cleanup(func() { end(); <-ended })
	select {
	case <-began:
	case <-ended:
		s.t.Fatal(err)
	}
	file, finish := s.captureAt(at.netns, segment.Inside, name)
	return func() {
		s.t.Helper()
		finish()
		end()
		<-ended
		if err != nil {
			s.t.Fatal(err)
		}
		if lost := live.summary.Captures.Lost; lost > 0 || len(live.messages) == 0 {
			s.t.Errorf("got %d messages, the kernel dropped %d frames", len(live.messages), lost)
		}
		kept := analyse(s.t, keep.Name)
		if !reflect.DeepEqual(live, kept) {
			s.t.Errorf("the stored capture gives another result: %d messages, live %d", len(kept.messages), len(live.messages))
		}
		if got, want := live.census(), analyse(s.t, file).census(); !reflect.DeepEqual(got, want) {
			s.t.Errorf("live capture has %v, tcpdump's has %v", got, want)
		} else {
			s.t.Logf("live at the %s: %v", name, got)
		}
	}
}

// census counts the messages of an analysis by protocol, and its transactions by type. When two CPUs
// receive and send at once, two captures may have the packets in different orders.
func (a *analysis) census() map[string]int {
	count := map[string]int{"messages": len(a.messages)}
	for i := range a.messages {
		count[fmt.Sprint(a.messages[i].Protocol)]++
	}
	for _, kind := range a.kinds {
		count[kind]++
	}
	return count
}
