package pseudonym

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"vitrine"
	"vitrine/affinity/message"
)

func TestTheSameUserHasOnePseudonym(t *testing.T) {
	k := New([]byte("secret"))
	imsi := k.Identifier(message.IMSI, "001010000000001")
	impi := k.Identifier(message.IMPI, "001010000000001@ims.mnc001.mcc001.3gppnetwork.org")
	if name, domain, _ := strings.Cut(impi, "@"); name != imsi || !strings.HasPrefix(domain, "p-") {
		t.Errorf("IMSI %s, IMPI %s", imsi, impi)
	}
	if a, b := k.Identifier(message.MSISDN, "4912345678"), k.Identifier(message.IMPU, "+4912345678"); a != b {
		t.Errorf("MSISDN %s, IMPU %s", a, b)
	}
	if a, b := k.Identifier(message.IMSI, "1"), k.Identifier(message.TEID, "1"); a == b {
		t.Errorf("an IMSI and a TEID have the same pseudonym %s", a)
	}
	again := New([]byte("secret"))
	if got := again.Identifier(message.IMSI, "001010000000001"); got != imsi || again.ID() != k.ID() {
		t.Errorf("the same key gave %s, want %s", got, imsi)
	}
	other := New([]byte("another"))
	if got := other.Identifier(message.IMSI, "001010000000001"); got == imsi || other.ID() == k.ID() {
		t.Errorf("another key gave the same pseudonym %s", got)
	}
}

func TestAddressesStayAddresses(t *testing.T) {
	k := New([]byte("secret"))
	at := k.Function("10.0.0.1:5060")
	end, err := netip.ParseAddrPort(at)
	if err != nil || end.Port() != 5060 || end.Addr() != k.addr(netip.MustParseAddr("::ffff:10.0.0.1")) {
		t.Errorf("%s: %v", at, err)
	}
	if !netip.MustParsePrefix("2001:db8::/32").Contains(end.Addr()) || k.Function("Bono") != "Bono" {
		t.Errorf("%s, %s", at, k.Function("Bono"))
	}
	person := k.Identifier(message.IMPU, "alice@10.0.0.1")
	if _, domain, _ := strings.Cut(person, "@"); domain != end.Addr().String() {
		t.Errorf("identity %s is not at the address %v", person, end.Addr())
	}
}

func TestNamesKeepKnownWordsAlone(t *testing.T) {
	k := New([]byte("secret"))
	hidden := k.text("word", "bob")
	for name, want := range map[string]string{
		"GET /impu/{}/reg-data":     "GET /impu/{}/reg-data",
		"200 GET /impu/{}/reg-data": "200 GET /impu/{}/reg-data",
		"GET /kv/bob":               "GET /kv/" + hidden,
		"bob /":                     hidden + " /",
		"GET /":                     "GET /",
		"200 (path lost)":           "200 (path lost)",
	} {
		if got := k.Name(message.HTTP, name); got != want {
			t.Errorf("name of %s: got %s, want %s", name, got, want)
		}
	}
	if got := k.Name(message.S1AP, "Initial UE Message: Attach Request"); got != "Initial UE Message: Attach Request" {
		t.Error(got)
	}
	if got := k.Form("reg/bob:{}"); got != "reg/"+hidden+":{}" {
		t.Error(got)
	}
}

func TestAMissingKeyIsMadeForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	first, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	again, err := Load(path)
	if err != nil || again.ID() != first.ID() {
		t.Errorf("%v", err)
	}
	other, err := Load(filepath.Join(t.TempDir(), "key"))
	if err != nil || other.ID() == first.ID() {
		t.Errorf("two keys are equal: %v", err)
	}
}

// TestProcessesAtOnceMakeOneKey checks that all that load a missing key at the same time get the same one.
func TestProcessesAtOnceMakeOneKey(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "key")
		keys, errs := make([]*Key, 8), make([]error, 8)
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() { keys[i], errs[i] = Load(path) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k.ID() != keys[0].ID() {
				t.Fatal("two loads returned different keys")
			}
		}
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := strings.Repeat("0a", keySize)
	for found, path := range map[string]string{
		"others may use the key": write("open", good, 0o644),
		"no key":                 write("short", good[2:], 0o600),
		"no regular file":        dir,
		"cannot be made":         filepath.Join(dir, "none", "key"),
	} {
		_, err := Load(path)
		if bad, ok := errors.AsType[*vitrine.BadInput](err); !ok || !strings.Contains(bad.Found, found) || bytes.Contains([]byte(err.Error()), []byte("0a0a")) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Load(write("good", " "+good+"\n", 0o600)); err != nil {
		t.Error(err)
	}
}
