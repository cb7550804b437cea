package loopback

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"

	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
)

func TestLoopbackFabric(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T, root string) fabrictest.Harness {
		run := fabrictest.NewRun(t, root)
		return fabrictest.Harness{
			Fabric: New(Config{Run: run}), Run: run,
			Place: func(*testing.T, string) string { return "" },
			Left:  func() ([]string, error) { return nil, nil }, // see TestLoopbackAddressesAreFreed
		}
	})
}

func attach(t *testing.T, f *Fabric, instance string) netip.Addr {
	t.Helper()
	end, err := f.Attach(context.Background(), fabric.Port{Instance: instance})
	if err != nil {
		t.Fatal(err)
	}
	return end.Addr
}

// TestLoopbackAddressesNeverClash gives two fabrics the same label, so that
// both try the same block first.
func TestLoopbackAddressesNeverClash(t *testing.T) {
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	first, second := New(Config{Run: run}), New(Config{Run: run})
	defer first.Close(context.Background())
	defer second.Close(context.Background())
	block := netip.PrefixFrom(attach(t, first, "bono-1"), 24)
	if addr := attach(t, second, "bono-1"); block.Masked().Contains(addr) {
		t.Errorf("two fabrics use addresses of %s", block.Masked())
	}
}

func TestLoopbackAddressesAreFreed(t *testing.T) {
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	first := New(Config{Run: run})
	had := attach(t, first, "bono-1")
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	second := New(Config{Run: run})
	defer second.Close(context.Background())
	if addr := attach(t, second, "bono-1"); addr != had {
		t.Errorf("got address %s, want %s, which was released", addr, had)
	}
}

// TestLoopbackReusesAddresses checks that a run that attaches instances for months does not claim
// ever more blocks, and that it reuses an address as late as possible.
func TestLoopbackReusesAddresses(t *testing.T) {
	f := New(Config{Run: fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))})
	defer f.Close(context.Background())
	last := make(map[netip.Addr]int)
	for i := range 3 * reuse {
		addr := attach(t, f, "bono-1")
		if before, had := last[addr]; had && i-before < reuse {
			t.Fatalf("the address %s came back after %d others", addr, i-before)
		}
		last[addr] = i
		if err := f.Detach(t.Context(), "bono-1"); err != nil {
			t.Fatal(err)
		}
	}
	if most := reuse/254 + 1; len(f.claims) > most {
		t.Errorf("the fabric has %d blocks, want at most %d", len(f.claims), most)
	}
}

func TestLoopbackHasMoreThanOneBlock(t *testing.T) {
	f := New(Config{Run: fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))})
	defer f.Close(context.Background())
	had := make(map[netip.Addr]bool)
	for i := range 600 {
		addr := attach(t, f, string(rune('a'+i%26))+string(rune('a'+i/26)))
		if had[addr] || !addr.IsLoopback() || addr.As4()[3] == 0 || addr.As4()[3] == 255 {
			t.Fatalf("got the repeated or invalid address %d: %s", i, addr)
		}
		had[addr] = true
	}
}
