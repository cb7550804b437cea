package fabric_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/substrate"
	"vitrine/substrate/qemu/qemutest"
)

// TestGuestKernel runs tests of features that this host's kernel may lack, ipvlan and netem, in a
// virtual machine with Debian's kernel. An emulated machine does not keep accurate time, so netem's
// delay is not tested.
func TestGuestKernel(t *testing.T) {
	in := boot(t)
	if err := in.Run(t.Context(), vitrine.Command{Args: []string{"/sbin/modprobe", "-a", "veth", "bridge", "ipvlan", "sch_netem", "af_packet"}}); err != nil {
		t.Fatal(err)
	}
	ipvlan := []string{"TestIpvlanLeavesTheModeOfOthers", "TestIpvlanFabric/l2/Broadcast"}
	for _, part := range []string{"Reach", "Distinct", "DetachAndAttach", "DetachGone", "Refusals", "CloseLeavesNothing", "TwoRuns", "MTU", "Killed"} {
		ipvlan = append(ipvlan, "TestIpvlanFabric/l2/"+part, "TestIpvlanFabric/l3/"+part)
	}
	for _, c := range []struct {
		name, tests string
		passes      []string
	}{
		{"ipvlan", "^TestIpvlan(Fabric|LeavesTheModeOfOthers)$", ipvlan},
		{"impair", "^TestNetem$/^(Loss|Reordering|Beside)", []string{
			"TestNetem/LossIsReadBack", "TestNetem/ReorderingIsReadBack", "TestNetem/BesideEmulator",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			binary, output := hosttest.BuiltTests(t, "vitrine/fabric/"+c.name), filepath.Join(t.TempDir(), "output")
			err := in.Run(t.Context(), vitrine.Command{Args: []string{binary, "-test.v", "-test.run=" + c.tests}, Stdout: output})
			text, reading := os.ReadFile(output)
			t.Logf("output of the machine:\n%s", text)
			if err != nil || reading != nil {
				t.Error(err, reading)
			}
			for _, name := range c.passes {
				if !strings.Contains(string(text), "--- PASS: "+name+" ") {
					t.Errorf("%s did not pass", name)
				}
			}
		})
	}
}

// boot makes a virtual machine for the duration of the test. Its memory has room for the rings of
// an emulator.
func boot(t *testing.T) substrate.Instance {
	t.Helper()
	s, run := qemutest.New(t, hosttest.Built(t, "vitrine/substrate/qemu/guest/program"))
	in, err := s.Create(t.Context(), substrate.Spec{Run: run.ID, Name: "host-1", Component: "host", VCPUs: 1, Memory: 1 << 30, Dir: t.TempDir()})
	hosttest.Need(t, err)
	return in
}
