package aka

import (
	"bytes"
	"crypto/aes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/tink-crypto/tink-go/v2/prf/subtle"
	"github.com/wmnsk/milenage"

	"vitrine/wire/identity"
	"vitrine/wire/nas"
)

func octets(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func key(t testing.TB, s string) [16]byte { t.Helper(); return [16]byte(octets(t, s)) }

// A testSet is one of TS 35.207 clauses 4 to 6.
type testSet struct {
	k, rand, sqn, amf, op, opc string
	f1, f1star                 string
	f2, f3, f4, f5, f5star     string
}

func testSets() []testSet {
	return []testSet{
		{
			"465b5ce8b199b49faa5f0a2ee238a6bc", "23553cbe9637a89d218ae64dae47bf35", "ff9bb4d0b607", "b9b9",
			"cdc202d5123e20f62b6d676ac72cb318", "cd63cb71954a9f4e48a5994e37a02baf", "4a9ffac354dfafb3", "01cfaf9ec4e871e9",
			"a54211d5e3ba50bf", "b40ba9a3c58b2a05bbf0d987b21bf8cb", "f769bcd751044604127672711c6d3441", "aa689c648370", "451e8beca43b",
		},
		{
			"0396eb317b6d1c36f19c1c84cd6ffd16", "c00d603103dcee52c4478119494202e8", "fd8eef40df7d", "af17",
			"ff53bade17df5d4e793073ce9d7579fa", "53c15671c60a4b731c55b4a441c0bde2", "5df5b31807e258b0", "a8c016e51ef4a343",
			"d3a628ed988620f0", "58c433ff7a7082acd424220f2b67c556", "21a8c1f929702adb3e738488b9f5c5da", "c47783995f72", "30f1197061c1",
		},
		{
			"fec86ba6eb707ed08905757b1bb44b8f", "9f7c8d021accf4db213ccff0c7f71a6a", "9d0277595ffc", "725c",
			"dbc59adcb6f9a0ef735477b7fadf8374", "1006020f0a478bf6b699f15c062e42b3", "9cabc3e99baf7281", "95814ba2b3044324",
			"8011c48c0c214ed2", "5dbdbb2954e8f3cde665b046179a5098", "59a92d3b476a0443487055cf88b2307b", "33484dc2136b", "deacdd848cc6",
		},
		{
			"9e5944aea94b81165c82fbf9f32db751", "ce83dbc54ac0274a157c17f80d017bd6", "0b604a81eca8", "9e09",
			"223014c5806694c007ca1eeef57f004f", "a64a507ae1a2a98bb88eb4210135dc87", "74a58220cba84c49", "ac2cc74a96871837",
			"f365cd683cd92e96", "e203edb3971574f5a94b0d61b816345d", "0c4524adeac041c4dd830d20854fc46b", "f0b9c08ad02e", "6085a86c6f63",
		},
		{
			"4ab1deb05ca6ceb051fc98e77d026a84", "74b0cd6031a1c8339b2b6ce2b8c4a186", "e880a1b580b6", "9f07",
			"2d16c5cd1fdf6b22383584e3bef2a8d8", "dcf07cbd51855290b92a07a9891e523e", "49e785dd12626ef2", "9e85790336bb3fa2",
			"5860fc1bce351e7e", "7657766b373d1c2138f307e3de9242f9", "1c42e960d89b8fa99f2744e0708ccb53", "31e11a609118", "fe2555e54aa9",
		},
		{
			"6c38a116ac280c454f59332ee35c8c4f", "ee6466bc96202c5a557abbeff8babf63", "414b98222181", "4464",
			"1ba00a1a7c6700ac8c3ff3e96ad08725", "3803ef5363b947c6aaa225e58fae3934", "078adfb488241a57", "80246b8d0186bcf1",
			"16c8233f05a0ac28", "3f8c7587fe8e4b233af676aede30ba3b", "a7466cc1e6b2a1337d49d3b66e95d7b4", "45b0f69ab06c", "1f53cd2b1113",
		},
	}
}

// TestMilenage checks the library against test sets 1 to 6 of TS 35.207.
func TestMilenage(t *testing.T) {
	for i, s := range testSets() {
		opc, err := milenage.ComputeOPc(octets(t, s.k), octets(t, s.op))
		if err != nil || hex.EncodeToString(opc) != s.opc {
			t.Errorf("set %d: got OPc %x, error %v, want %s", i+1, opc, err, s.opc)
		}
		amf := octets(t, s.amf)
		m := milenage.NewWithOPc(octets(t, s.k), opc, octets(t, s.rand), number(octets(t, s.sqn)), uint16(amf[0])<<8|uint16(amf[1]))
		if err := m.ComputeAll(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name string
			got  []byte
			want string
		}{
			{"f1", m.MACA, s.f1}, {"f1*", m.MACS, s.f1star}, {"f2", m.RES, s.f2}, {"f3", m.CK, s.f3}, {"f4", m.IK, s.f4},
			{"f5", m.AK, s.f5}, {"f5*", m.AKS, s.f5star},
		} {
			if hex.EncodeToString(c.got) != c.want {
				t.Errorf("set %d: %s: got %x, want %s", i+1, c.name, c.got, c.want)
			}
		}
	}
}

var testNetwork = identity.PLMN{0x00, 0xf1, 0x10}

// TestAgreement runs HSS and UE against each other, with the keys of all sets.
func TestAgreement(t *testing.T) {
	for i, s := range testSets() {
		secret := Secret{K: key(t, s.k), OPc: key(t, s.opc)}
		sqn := number(octets(t, s.sqn))
		v, err := secret.Vector(key(t, s.rand), sqn, testNetwork)
		if err != nil || hex.EncodeToString(v.XRES[:]) != s.f2 {
			t.Errorf("set %d: got vector %+v, error %v", i+1, v, err)
		}
		a, err := secret.Answer(v.RAND, v.AUTN, testNetwork)
		if err != nil || a.SQN != sqn || a.RES != v.XRES || a.KASME != v.KASME {
			t.Errorf("set %d: got answer %+v, error %v to %+v", i+1, a, err, v)
		}
		if elsewhere, err := secret.Answer(v.RAND, v.AUTN, identity.PLMN{0x13, 0x00, 0x14}); err != nil || elsewhere.KASME == v.KASME {
			t.Errorf("set %d: the key does not depend on the network", i+1)
		}
		for bit := range 128 {
			wrong := v.AUTN
			wrong[bit/8] ^= 1 << (bit % 8)
			if _, err := secret.Answer(v.RAND, wrong, testNetwork); !errors.Is(err, ErrMAC) {
				t.Errorf("set %d: AUTN with bit %d changed: got %v", i+1, bit, err)
			}
		}
		auts, err := secret.AUTS(v.RAND, sqn)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := secret.Resynchronise(v.RAND, auts); err != nil || back != sqn {
			t.Errorf("set %d: AUTS %x: got SQN %x, error %v", i+1, auts, back, err)
		}
		auts[13] ^= 1
		if _, err := secret.Resynchronise(v.RAND, auts); !errors.Is(err, ErrAUTS) {
			t.Errorf("set %d: changed AUTS: got %v", i+1, err)
		}
	}
}

// TestSeparationBit answers set 2 of TS 35.207, whose AMF 0xaf17 has the
// separation bit, and set 3, whose AMF 0x725c has not.
func TestSeparationBit(t *testing.T) {
	for i, want := range map[int]error{1: nil, 2: ErrBit} {
		s := testSets()[i]
		autn := append(octets(t, s.sqn), octets(t, s.amf+s.f1)...)
		for j, b := range octets(t, s.f5) {
			autn[j] ^= b
		}
		secret := Secret{K: key(t, s.k), OPc: key(t, s.opc)}
		if _, err := secret.Answer(key(t, s.rand), [16]byte(autn), testNetwork); !errors.Is(err, want) {
			t.Errorf("set %d: got %v, want %v", i+1, err, want)
		}
	}
}

// TestKeys compares with keys that Python's hmac derived from set 1 of TS 35.207,
// by the formulas of TS 33.401 annexes A.2, A.3, A.4 and A.7.
func TestKeys(t *testing.T) {
	s := testSets()[0]
	hidden := octets(t, s.sqn)
	for i, b := range octets(t, s.f5) {
		hidden[i] ^= b
	}
	k := kasme(octets(t, s.f3), octets(t, s.f4), testNetwork, hidden)
	enb := KeNB(k, 0x01020304)
	hop := NextHop(k, enb)
	cipher, integrity := nasKey(k, 1, AES), nasKey(k, 2, AES)
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"KASME", k[:], "48579af8781c742d5120e6ed8ccac13193f38c53ab7aa69396f49ca6e1b0562d"},
		{"KeNB", enb[:], "2ee06f3d257214f5c4cdc74d4f2e6aa27c93e71507e10f4c7c2e1c22c6753078"},
		{"NH", hop[:], "064281a61889be8cb972334ee25a19615184eb4327e84c49d7aa901e1f3df19e"},
		{"KNASenc", cipher[:], "e183be270c6611b50efdfb106184d03c"},
		{"KNASint", integrity[:], "3d6da7d07a29c8a36527b36eeda82364"},
	} {
		if hex.EncodeToString(c.got) != c.want {
			t.Errorf("%s: got %x, want %s", c.name, c.got, c.want)
		}
	}
}

// TestEIA2 uses the test sets of TS 33.401 annex C.2 whose messages are whole
// octets: NAS has no others.
func TestEIA2(t *testing.T) {
	for _, c := range []struct {
		set          int
		count        uint32
		bearer       byte
		d            Direction
		key, message string
		want         uint32
	}{
		{2, 0x398a59b4, 0x1a, Downlink, "d3c5d592327fb11c4035c6680af8c6d1", "484583d5afe082ae", 0xb93787e6},
		{
			5, 0x36af6144, 0x0f, Downlink, "83fd23a244a74cf358da3019f1722635",
			"35c68716633c66fb750c266865d53c11ea05b1e9fa49c8398d48e1efa5909d3947902837f5ae96d5a05bc8d61ca8dbef" +
				"1b13a4b4abfe4fb1006045b674bb54729304c382be53a5af05556176f6eaa2ef1d05e4b083181ee674cda5a485f74d7a", 0xe657e182,
		},
	} {
		mac, err := subtle.NewAESCMACPRF(octets(t, c.key))
		if err != nil {
			t.Fatal(err)
		}
		p := Protection{integrity: mac}
		for range 2 { // the scratch buffer is used again
			if got, err := p.mac(c.count, c.bearer, c.d, octets(t, c.message)); err != nil || got != c.want {
				t.Errorf("set %d: got %08x, %v, want %08x", c.set, got, err, c.want)
			}
		}
	}
}

// TestEEA2 uses test set 1 of TS 33.401 annex C.1, of 253 bits.
func TestEEA2(t *testing.T) {
	block, err := aes.NewCipher(octets(t, "d3c5d592327fb11c4035c6680af8c6d1"))
	if err != nil {
		t.Fatal(err)
	}
	plain := octets(t, "981ba6824c1bfb1ab485472029b71d808ce33e2cc3c0b5fc1f3de8a6dc66b1f0")
	want := octets(t, "e9fed8a63d155304d71df20bf3e82214b20ed7dad2f233dc3c22d7bdeeed8e78")
	p, b := Protection{cipher: block}, bytes.Clone(plain)
	p.stream(0x398a59b4, 0x15, Downlink, b)
	b[31] &= 0xf8
	if !bytes.Equal(b, want) {
		t.Errorf("got %x, want %x", b, want)
	}
	p.stream(0x398a59b4, 0x15, Downlink, b)
	if b[31] &= 0xf8; !bytes.Equal(b, plain) {
		t.Errorf("deciphered: got %x, want %x", b, plain)
	}
}

// TestFrame protects an Attach Complete as a UE does, and reads it as an MME does.
func TestFrame(t *testing.T) {
	for _, ciphering := range []Algorithm{Null, AES} {
		ue, err := NewProtection([32]byte{1}, ciphering, AES)
		if err != nil {
			t.Fatal(err)
		}
		mme, err := NewProtection([32]byte{1}, ciphering, AES)
		if err != nil {
			t.Fatal(err)
		}
		const count = 0x0000_0105
		message := nas.AttachComplete{ESM: []byte{0x52, 0, 0xc2}}
		b := message.Append(nas.AppendFrame(nil, nas.Ciphered, uint8(count&0xff)))
		ue.Cipher(count, Uplink, nas.FrameBody(b, 0))
		mac, err := ue.MAC(count, Uplink, nas.FrameCovered(b, 0))
		if err != nil {
			t.Fatal(err)
		}
		nas.SetMAC(b, 0, mac)

		var p nas.PDU
		if err := p.Parse(b); err != nil || p.Sequence != 5 {
			t.Fatalf("%+v, %v", p, err)
		}
		if mac, err := mme.MAC(count, Uplink, p.Covered()); err != nil || mac != p.MAC {
			t.Errorf("got MAC %08x, %v, want %08x", mac, err, p.MAC)
		}
		if mac, _ := mme.MAC(count, Downlink, p.Covered()); mac == p.MAC {
			t.Error("the MAC does not depend on the direction")
		}
		var got nas.AttachComplete
		if ciphering == AES && got.Parse(p.Body) == nil {
			t.Error("the body is not ciphered")
		}
		mme.Cipher(count, Uplink, p.Body)
		if err := got.Parse(p.Body); err != nil || !bytes.Equal(got.ESM, message.ESM) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestAlgorithms(t *testing.T) {
	for _, c := range []struct{ ciphering, integrity Algorithm }{{1, AES}, {3, AES}, {Null, 0}, {Null, 1}, {AES, 3}} {
		if _, err := NewProtection([32]byte{}, c.ciphering, c.integrity); err == nil {
			t.Errorf("NewProtection accepted %+v", c)
		}
	}
}
