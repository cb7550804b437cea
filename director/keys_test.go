package director

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/sip"
)

var (
	keyTime = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	secret  = strings.Repeat("0f", 16)
)

func writeKeys(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shared.keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadKeys(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "no key",
		"# nothing\n":                 "no key",
		"1 " + secret + "\n":          "2 fields",
		"0 " + secret + " 2026-01-01": `the ID "0"`,
		"256 " + secret + " 2026-01-01T00:00:00Z":                                        `the ID "256"`,
		"1 " + secret[1:] + " 2026-01-01T00:00:00Z":                                      "a secret of 31 characters",
		"1 " + secret + " yesterday":                                                     `the time "yesterday"`,
		"1 " + secret + " 2026-01-01T00:00:00Z\n1 " + secret + " 2026-02-01T00:00:00Z\n": "duplicate key 1",
	} {
		_, err := readKeys(writeKeys(t, text))
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret[:8]) {
			t.Errorf("keys %q: got error %v, want %q without the secret", text, err, want)
		}
	}
	c := &Config{Listen: Listen{SIP: []string{"udp://127.0.0.1:5060"}}, Keys: Keys{File: filepath.Join(t.TempDir(), "none")}}
	if _, err := loadKeys(c, nil, keyTime); !vitrine.IsBadInput(err) {
		t.Errorf("without a key file: got error %v, want a bad input error", err)
	}
}

// TestSigning checks that only the times in the file decide which keys sign and verify.
func TestSigning(t *testing.T) {
	keys, err := readKeys(writeKeys(t, "3 "+secret+" 2026-01-02T17:00:00Z\n1 "+secret+" 2026-01-01T00:00:00Z\n2 "+secret+" 2026-01-02T15:00:00Z\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{}
	c.Keys.setDefaults(Duration(32 * time.Second))
	for at, want := range map[string]string{
		"1970-01-01T00:00:09Z": "1:vr 2:vr 3:vr",
		"2026-01-02T14:59:59Z": "1:vr 2:vr 3:vr",
		"2026-01-02T15:00:00Z": "2:vr 1:vr 3:vr",
		"2026-01-02T15:10:00Z": "2:vr 1:r 3:vr",
		"2026-01-02T17:00:00Z": "3:vr 2:vr 1:r",
		"2026-01-03T15:00:00Z": "3:vr 2:r 1:",
		"2026-01-03T17:00:00Z": "3:vr 2: 1:",
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range signing(keys, c, now) {
			text := string('0'+rune(k.ID)) + ":"
			if k.Via {
				text += "v"
			}
			if k.Route {
				text += "r"
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("at %s: got keys %v, want %s", at, got, want)
		}
	}
}

// TestRingingCoversTheTransition checks that an old key verifies the answers to calls that ring for as
// long as the transition allows.
func TestRingingCoversTheTransition(t *testing.T) {
	keys := []key{{id: 1, since: keyTime.Add(-time.Hour)}, {id: 2, since: keyTime}}
	patient := strings.Replace(good, "transition: 2s", "transition: 15m", 1)
	c, err := Load(write(t, filepath.Join(t.TempDir(), "long.yaml"), patient))
	if err != nil {
		t.Fatal(err)
	}
	if all := signing(keys, c, keyTime.Add(14*time.Minute)); len(all) != 2 || !all[1].Via {
		t.Errorf("a transition of 15 minutes, 14 minutes after the new key: got keys %+v, want that the old one verifies Via", all)
	}
	_, err = Load(write(t, filepath.Join(t.TempDir(), "short.yaml"), patient+"keys: {ringing: 5m}\n"))
	if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "ringing 5m0s below transition 15m0s") {
		t.Errorf("ringing below the transition: got error %v", err)
	}
}

// TestKeysAreMadeOnce checks that a director without keys.file makes a private key file beside its
// state, and that a restart keeps the file.
func TestKeysAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	c := &Config{State: filepath.Join(dir, "director.state"), Listen: Listen{SIP: []string{"udp://127.0.0.1:5060"}}}
	first, err := loadKeys(c, nil, keyTime)
	if err != nil || len(first) != 1 || first[0].secret == [16]byte{} || !first[0].since.Equal(keyTime) {
		t.Fatalf("%v %v", first, err)
	}
	again, err := loadKeys(c, nil, keyTime.Add(time.Hour))
	if err != nil || again[0] != first[0] {
		t.Errorf("%v %v", again, err)
	}
	info, err := os.Stat(filepath.Join(dir, "director.keys"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
	// The clock of a host without a battery starts in 1970.
	if again, err = loadKeys(c, nil, time.Unix(9, 0)); err != nil || again[0] != first[0] {
		t.Errorf("with a clock that is behind: got keys %v, error %v", again, err)
	}
	if err := os.Remove(filepath.Join(dir, "director.keys")); err != nil {
		t.Fatal(err)
	}
	if _, err := loadKeys(c, c, keyTime); !vitrine.IsBadInput(err) {
		t.Errorf("a reload with missing keys: got error %v, want a bad input error", err)
	}
	c.Listen.SIP = nil
	if none, err := loadKeys(c, nil, keyTime); err != nil || none != nil {
		t.Errorf("without SIP: got keys %v, error %v, want none", none, err)
	}
}

// TestKeysReload checks that a reload changes the signing key, and that a broken file changes
// nothing.
func TestKeysReload(t *testing.T) {
	keys := writeKeys(t, "1 "+secret+" 2026-01-01T00:00:00Z\n")
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good+"keys: {file: "+keys+"}\n"))
	signs := func(want string) {
		t.Helper()
		x, err := r.protocols[0].server.(*sip.Server).Explain(r.now(), r.meter.Probe(), netip.MustParseAddrPort("127.0.0.1:9"), request("REGISTER", "k"))
		if err != nil || !strings.Contains(string(x.Message), ";vm="+want) {
			t.Errorf("got error %v, want key %s in\n%s", err, want, x.Message)
		}
	}
	signs("0001")
	more := "1 " + secret + " 2026-01-01T00:00:00Z\n200 " + strings.Repeat("a0", 16) + " 2026-01-02T00:00:00Z\n"
	write(t, keys, more)
	if err := r.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	signs("00c8")
	write(t, keys, more+"7\n")
	if err := r.client.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), ":3:1: ") {
		t.Errorf("reload with a broken file: got error %v, want its position :3:1:", err)
	}
	signs("00c8")
}
