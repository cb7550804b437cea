package segment

import (
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestAddressOfTheKernel checks that only the address that the kernel makes from the MAC address is
// left to the kernel.
func TestAddressOfTheKernel(t *testing.T) {
	mac := net.HardwareAddr{0x02, 0x00, 0x5e, 0x10, 0x00, 0x01}
	for addr, want := range map[string]bool{
		"fe80::5eff:fe10:1": true, "fe80::1": false, "2001:db8::5eff:fe10:1": false, "169.254.7.7": false,
	} {
		if got := isFromMAC(net.ParseIP(addr), mac); got != want {
			t.Errorf("%s: got %t, want %t", addr, got, want)
		}
	}
	if isFromMAC(net.ParseIP("fe80::1"), nil) {
		t.Error("an interface without a MAC address has an address from it")
	}
}

// TestListAgain checks that List repeats an interrupted listing, but not for ever.
func TestListAgain(t *testing.T) {
	for interrupted, want := range map[int]error{0: nil, 3: nil, 1000: netlink.ErrDumpInterrupted} {
		calls := 0
		all, err := List(func() ([]int, error) {
			if calls++; calls <= interrupted {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, nil
		})
		if !errors.Is(err, want) || want == nil && len(all) != 2 {
			t.Errorf("interrupted %d times: got %d, error %v, want error %v", interrupted, all, err, want)
		}
	}
}
