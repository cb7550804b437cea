package measure

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"vitrine/fabric"
	"vitrine/internal/hosttest"
	"vitrine/testbed"
)

// visit places sender and receiver on the bridge.
func (b *bench) visit(t *testing.T) *visit {
	t.Helper()
	c := &Config{Stage: Stage{Testbed: b.testbed(), CPUs: b.cpus}, Plan: Plan{Settings: settings("bridge")}}
	s, err := openSite(t.Context(), c, Combination{"process", "bridge"}, t.TempDir())
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return s.Close(context.WithoutCancel(t.Context())) })
	return &visit{Runner: &Runner{Stage: &c.Stage}, site: s, label: 1}
}

// TestSwitchLearnsTheReceiver checks that a frame of the receiver passes the bridge before the first
// one-way stream. The bridge would flood the stream otherwise, which takes other CPU time.
func TestSwitchLearnsTheReceiver(t *testing.T) {
	v := newBench(t).visit(t)
	arrived := func() (frames uint64) {
		err := v.sender.Inside(func() error {
			link, err := netlink.LinkByName(v.sender.Endpoint.Interface)
			if err == nil {
				frames = link.Attrs().Statistics.RxPackets
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return frames
	}
	before := arrived()
	if err := v.startReceiver(t.Context(), []stream{{way: OneWay, packets: 1}}); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, 10*time.Second, "no frame of the receiver has arrived at the sender", func() bool { return arrived() > before })
}

// TestEchoHasTheReceiversCPU checks that the echo runs on the CPU that the report names, as the receiver
// of one-way streams does. A virtual machine has CPUs of its own.
func TestEchoHasTheReceiversCPU(t *testing.T) {
	receiver := &port{Instance: &testbed.Instance{Endpoint: fabric.Endpoint{Addr: floorAddress()}}}
	v := visit{Runner: &Runner{Stage: &Stage{CPUs: testbed.CPUs{Function: []int{3, 4}}}}, site: &site{receiver: receiver}}
	trips := []stream{{way: RoundTrip}}
	echo := []string{"echo", "--listen", v.receiverAddr().String()}
	if got, want := v.receiverArgs(trips), append(slices.Clone(echo), "--cpu", "3"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	v.guest = true
	if got := v.receiverArgs(trips); !slices.Equal(got, echo) {
		t.Errorf("in a virtual machine: got %q, want %q", got, echo)
	}
}

// TestSenderReadsTheSoakersFile checks that the soaker writes into the sender's folder: a sender in a
// container (--inside) sees no other one.
func TestSenderReadsTheSoakersFile(t *testing.T) {
	v := newBench(t).visit(t)
	file, err := v.startSoaker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(file, v.sender.Dir+"/") {
		t.Errorf("the soaker writes to %s, and the sender sees only %s", file, v.sender.Dir)
	}
	if err := v.stopSoaker(t.Context()); err != nil {
		t.Error(err)
	}
}
