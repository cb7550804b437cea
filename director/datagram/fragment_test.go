package datagram

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
)

// TestFragments checks that datagrams longer than the link's MTU arrive whole, as IPv4 and IPv6
// fragments (RFC 3261 section 18.1.1).
func TestFragments(t *testing.T) {
	err := netns.Try(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = errors.Join(netlink.LinkSetMTU(lo, 1280), netlink.LinkSetUp(lo))
		}
		if err != nil {
			return err
		}
		if err := echoes(t.Context(), []int{1000, 1300, 4000, 60000}); err != nil {
			return err
		}
		four, six, err := reassembled()
		if err != nil {
			return err
		}
		if four != "6" || six != "6" { // three messages, in both directions
			return fmt.Errorf("IPv4 reassembled %s datagrams and IPv6 %s, want 6 each, so the test proves nothing", four, six)
		}
		return nil
	})
	hosttest.Need(t, err)
}

// echoes runs a group in this thread's network namespace, which echoes messages of each size.
func echoes(ctx context.Context, sizes []int) (err error) {
	g, err := Listen(Config{Addresses: loopback, Workers: 1, Now: clock()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx, func(int) Handler { return new(echo) }) }()
	defer func() {
		cancel()
		if ran := <-done; !errors.Is(ran, context.Canceled) {
			err = errors.Join(err, ran)
		}
		err = errors.Join(err, g.Close())
	}()
	for _, address := range g.Addresses() {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address))
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		answer := make([]byte, Largest)
		for _, size := range sizes {
			message := bytes.Repeat([]byte("0123456789"), size/10)
			if _, err := c.Write(message); err != nil {
				return err
			}
			n, err := c.Read(answer)
			if err != nil {
				return fmt.Errorf("%d bytes to %v: %w", size, address, err)
			}
			if !bytes.Equal(answer[:n], append([]byte("echo:"), message...)) {
				return fmt.Errorf("%d bytes to %v came back as %d different bytes", size, address, n)
			}
		}
	}
	return nil
}

// reassembled returns the number of datagrams that this thread's network namespace has reassembled,
// for IPv4 and IPv6.
func reassembled() (four, six string, err error) {
	v4, err := os.ReadFile("/proc/thread-self/net/snmp") // a line of names, then a line of values
	if err != nil {
		return "", "", err
	}
	v6, err := os.ReadFile("/proc/thread-self/net/snmp6") // a name and a value on each line
	if err != nil {
		return "", "", err
	}
	lines := strings.SplitN(string(v4), "\n", 3)
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	if i := slices.Index(names, "ReasmOKs"); i >= 0 && i < len(values) {
		four = values[i]
	}
	fields := strings.Fields(string(v6))
	if i := slices.Index(fields, "Ip6ReasmOKs"); i >= 0 {
		six = fields[i+1]
	}
	return four, six, nil
}
