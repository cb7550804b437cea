package machine

import (
	"context"
	"testing"
)

// TestChooseNeedsNoKernel checks that nothing is built, which takes minutes, if no kernel has to boot.
func TestChooseNeedsNoKernel(t *testing.T) {
	probed := &Prober{probed: true, found: KVM}
	for _, test := range []struct {
		prober      *Prober
		asked, want string
	}{
		{new(Prober), TCG, TCG},
		{probed, Auto, KVM},
		{probed, KVM, KVM},
	} {
		got, _, err := test.prober.Choose(t.Context(), test.asked, func(context.Context) (string, error) {
			t.Errorf("%s: Choose asks for a kernel", test.asked)
			return "", nil
		})
		if got != test.want || err != nil {
			t.Errorf("%s: got %q, error %v, want %q", test.asked, got, err, test.want)
		}
	}
}
