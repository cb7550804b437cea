package vitrine

import (
	"errors"
	"testing"
)

func TestParseSizing(t *testing.T) {
	s, err := ParseSizing("bn1s-sp2m-hs10l")
	if err != nil {
		t.Fatal(err)
	}
	want := Sizing{{"bn", 1, 's'}, {"sp", 2, 'm'}, {"hs", 10, 'l'}}
	if len(s) != len(want) || s[0] != want[0] || s[1] != want[1] || s[2] != want[2] {
		t.Errorf("got %v", s)
	}
	if s.String() != "bn1s-sp2m-hs10l" || s.Instances() != 13 || *s.Part("sp") != want[1] || s.Part("xx") != nil {
		t.Errorf("%s has %d instances, sp %v", s, s.Instances(), s.Part("sp"))
	}
	c := s.Clone()
	if c[0].Count = 5; s[0].Count != 1 {
		t.Error("a clone shares its parts")
	}
}

// TestTableII checks that all ten sizes of NFV-VITAL's Table II parse and are
// written as they were.
func TestTableII(t *testing.T) {
	for _, text := range []string{
		"bn1s-sp1s-hs1s", "bn1m-sp1m-hs1m", "bn1m-sp2s-hs2s", "bn1l-sp1l-hs1l", "bn1l-sp1l-hs2m",
		"bn1l-sp2m-hs1l", "bn1l-sp2m-hs2m", "bn1l-sp1l-hs4s", "bn1l-sp4s-hs1l", "bn1l-sp4s-hs4s",
	} {
		if s, err := ParseSizing(text); err != nil || s.String() != text {
			t.Errorf("%s is read as %s (%v)", text, s, err)
		}
	}
}

func TestParseSizingRefuses(t *testing.T) {
	for _, text := range []string{
		"", "-", "bn", "bn1", "1s", "bns", "bn0s", "bn-1s", "bn10001s", "bn99999999999999999999s", "BN1s", "bn1S", "bn1s-", "-bn1s",
		"bn1s--sp1s", "bn1s-bn2s", "bn1ss", "bn1s sp1s", "bn1s\n", "bn1.5s", "bn१s",
	} {
		if s, err := ParseSizing(text); !errors.Is(err, ErrSizing) {
			t.Errorf("%q is read as %v (%v)", text, s, err)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		r, limit Resources
		want     bool
	}{
		{Resources{0.1 + 0.2, 5}, Resources{0.3, 5}, true},
		{Resources{0.31, 5}, Resources{0.3, 5}, false},
		{Resources{0.3, 6}, Resources{0.3, 5}, false},
		{Resources{99, 6}, Resources{0, 6}, true},
		{Resources{0.3, 1 << 60}, Resources{0.3, 0}, true},
	} {
		if got := c.r.Within(c.limit); got != c.want {
			t.Errorf("%v within %v is %v", c.r, c.limit, got)
		}
	}
}

// FuzzParseSizing checks that an accepted sizing is the same after it is written
// and parsed again.
func FuzzParseSizing(f *testing.F) {
	for _, text := range []string{"bn1s-sp2m-hs1l", "a1a", "bn01s", "bn0s", "bn10000s-sp1s", "bn10001s", "bn1s-bn1s", "-", "", "bn1s-\xff1s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSizing(text)
		if err != nil {
			if !errors.Is(err, ErrSizing) {
				t.Errorf("not ErrSizing: %v", err)
			}
			return
		}
		again, err := ParseSizing(s.String())
		if err != nil || again.String() != s.String() || again.Instances() != s.Instances() {
			t.Errorf("%q is written as %q and read as %v (%v)", text, s, again, err)
		}
	})
}
