package subscriber

import (
	"encoding/hex"
	"strings"
	"testing"

	"vitrine/reference/epc/aka"
)

func TestRanges(t *testing.T) {
	s := Set{first: 1010000000001, digits: 15, count: 3, wrong: 2}
	for imsi, want := range map[string]bool{
		"001010000000000": false, "001010000000001": true, "001010000000003": true, "001010000000004": false,
		"1010000000001": false, "0001010000000001": false, "+01010000000001": false, "": false,
	} {
		secret, ok := s.Secret(imsi)
		if ok != want {
			t.Errorf("%s: got known %v", imsi, ok)
		}
		if ok && secret != aka.SecretOf(imsi) {
			t.Errorf("subscriber %s has another secret", imsi)
		}
	}
	if secret, ok := s.Secret("001010000000002"); !ok || secret == aka.SecretOf("001010000000002") {
		t.Error("the second subscriber has the secret of its IMSI")
	}
}

// FuzzReadFile checks that a file is refused or holds subscribers that can be
// written again.
func FuzzReadFile(f *testing.F) {
	key := strings.Repeat("0f", 16)
	f.Add("# comment\n001010000000001," + key + "," + key + "\n001010000000002, " + key + ", " + key)
	f.Add("001010000000001," + key)
	f.Add("\"001010000000001\",\"\n\"," + key)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readFile(strings.NewReader(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for imsi, s := range all {
			again.WriteString(imsi + "," + hex.EncodeToString(s.K[:]) + "," + hex.EncodeToString(s.OPc[:]) + "\n")
		}
		back, err := readFile(strings.NewReader(again.String()))
		if err != nil || len(back) != len(all) {
			t.Fatalf("%q: got %d of %d subscribers, error %v", again.String(), len(back), len(all), err)
		}
		for imsi, s := range all {
			if back[imsi] != s {
				t.Errorf("%s: got %+v and %+v", imsi, s, back[imsi])
			}
		}
	})
}
