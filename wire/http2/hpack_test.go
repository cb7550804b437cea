package http2

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// TestHuffmanCodes compares all codes, which this package derives from their lengths,
// with the codes of another implementation.
func TestHuffmanCodes(t *testing.T) {
	for c := range 256 {
		for _, text := range []string{string([]byte{byte(c)}), strings.Repeat(string([]byte{byte(c)}), 9) + "a"} {
			coded := hpack.AppendHuffmanString(nil, text)
			if got, ok := appendHuffman(nil, coded); !ok || string(got) != text {
				t.Errorf("%q: %x was decoded as %q, %v", text, coded, got, ok)
			}
		}
	}
	for name, coded := range map[string][]byte{
		"the end of a string": {0xff, 0xff, 0xff, 0xff},
		"a zero as padding":   {0x00},
		"8 bits of padding":   {0x07, 0xff, 0xff},
		"only padding":        {0xff},
	} {
		if got, ok := appendHuffman(nil, coded); ok {
			t.Errorf("decoding %s returned %q, want an error", name, got)
		}
	}
}

func TestStaticTable(t *testing.T) {
	var got [][2]string
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { got = append(got, [2]string{f.Name, f.Value}) })
	for i := range static {
		if _, err := d.Write([]byte{0x81 + byte(i)}); err != nil {
			t.Fatal(err)
		}
		if string(static[i].name) != got[i][0] || string(static[i].value) != got[i][1] || static[i].value == nil {
			t.Errorf("entry %d: got %s: %s, want %s", i+1, static[i].name, static[i].value, got[i])
		}
	}
}

// A pairing decodes the same blocks here and with golang.org/x/net.
type pairing struct {
	ours   blockDecoder
	late   blockDecoder // forgets its table before the block that forget counts down to
	forget int
	theirs *hpack.Decoder
	fields []hpack.HeaderField
}

func newPairing(forget int) *pairing {
	p := &pairing{ours: newBlockDecoder(), late: newBlockDecoder(), forget: forget}
	p.theirs = hpack.NewDecoder(defaultTable, func(f hpack.HeaderField) { p.fields = append(p.fields, f) })
	p.theirs.SetAllowedMaxDynamicTableSize(1<<32 - 1)
	return p
}

// decode compares one block. It returns false if the block is invalid.
func (p *pairing) decode(t *testing.T, block []byte) bool {
	p.fields = p.fields[:0]
	isWhole := p.ours.table.isWhole // not while the sender's table is above the bound
	err := p.ours.decode(block)
	_, theirs := p.theirs.Write(block)
	if closed := p.theirs.Close(); theirs == nil {
		theirs = closed
	}
	if errors.Is(err, errCopied) {
		return false
	}
	if errors.Is(err, errUpdate) || theirs != nil && strings.Contains(theirs.Error(), "size update MUST") {
		return false // x/net accepts a late one while the table is empty, and no two of them while it is not
	}
	if (err == nil) != (theirs == nil) {
		t.Fatalf("block %x: got error %v, x/net has %v", block, err, theirs)
	}
	if p.ours.dropped == 0 {
		check(t, p.ours.fields, p.fields, !isWhole || !p.ours.table.isWhole)
	}
	if p.forget--; p.forget < 0 && theirs == nil {
		if p.forget == -1 {
			p.late.table.forget()
		}
		if err := p.late.decode(block); errors.Is(err, errCopied) {
			return false
		} else if err != nil {
			t.Fatalf("decode %x after a gap: %v", block, err)
		}
		if p.late.dropped == 0 {
			check(t, p.late.fields, p.fields, true)
		}
	}
	return err == nil
}

// check compares fields. After a gap, fields may be unknown, but not wrong.
func check(t *testing.T, got []Field, want []hpack.HeaderField, gap bool) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d fields %+v, x/net has %d: %v", len(got), got, len(want), want)
	}
	for i, f := range got {
		name := string(f.Name) == want[i].Name && f.Name != nil || gap && f.Name == nil
		value := string(f.Value) == want[i].Value && f.Value != nil || gap && f.Name == nil && f.Value == nil
		if !name || !value || f.Sensitive != want[i].Sensitive {
			t.Fatalf("field %d: got %q: %q, %v, x/net has %+v", i, f.Name, f.Value, f.Sensitive, want[i])
		}
	}
}

// encoded returns blocks that the encoder of x/net makes, with size updates.
func encoded(random *rand.Rand, count int) (all [][]byte) {
	var out bytes.Buffer
	e := hpack.NewEncoder(&out)
	e.SetMaxDynamicTableSizeLimit(1 << 20)
	names := []string{":path", ":method", "cookie", "x-a", "x-long-name-of-a-field", "accept", ""}
	for range count {
		out.Reset()
		if random.IntN(8) == 0 {
			e.SetMaxDynamicTableSize([]uint32{0, 40, 100, 4096, 1 << 16, 1 << 18}[random.IntN(6)])
		}
		for range 1 + random.IntN(7) { // x/net refuses two size updates, which RFC 7541 section 4.2 allows
			value := strings.Repeat(string(rune('a'+random.IntN(26))), random.IntN(60)*random.IntN(3))
			if random.IntN(50) == 0 {
				value = strings.Repeat("\x01", random.IntN(20000))
			}
			_ = e.WriteField(hpack.HeaderField{Name: names[random.IntN(len(names))], Value: value, Sensitive: random.IntN(9) == 0})
		}
		all = append(all, bytes.Clone(out.Bytes()))
	}
	return all
}

// TestHeaderBlocks compares blocks of the encoder of x/net, which refer to entries of
// tables of all sizes.
func TestHeaderBlocks(t *testing.T) {
	for seed := range uint64(30) {
		p := newPairing(int(seed))
		for i, b := range encoded(rand.New(rand.NewPCG(seed, 0)), 200) {
			if !p.decode(t, b) {
				t.Fatalf("seed %d, block %d: the block was refused", seed, i)
			}
		}
	}
}

// TestTableIsKnownAgain checks which entries are known after a gap: later entries, and,
// once all entries are later ones, which indexes have no entry.
func TestTableIsKnownAgain(t *testing.T) {
	decode := func(d *blockDecoder, block string) string {
		t.Helper()
		if err := d.decode([]byte(block)); err != nil {
			return err.Error()
		}
		var s []string
		for _, f := range d.fields {
			name, value := string(f.Name), string(f.Value)
			if f.Name == nil {
				name = "?"
			}
			if f.Value == nil {
				value = "?"
			}
			s = append(s, name+"="+value)
		}
		return strings.Join(s, " ")
	}
	const insertA, insertB = "\x40\x01a\x011", "\x40\x01b\x012"
	d := newBlockDecoder()
	d.table.forget()
	for _, step := range []struct{ block, want string }{
		{"\x82\xbe", ":method=GET ?=?"},
		{insertA + "\xbe\xbf", "a=1 a=1 ?=?"},
		{insertB + "\xbe\xbf\xc0", "b=2 b=2 a=1 ?=?"},
		{"\x7f\x01\x01c\xbe\xbf", "?=c ?=c b=2"}, // the name of entry 64
		{"\x3f\x81\x01\xc0", "a=1"},              // 160: there is room for one that is not known
		{"\xc1", "?=?"},
	} {
		if got := decode(&d, step.block); got != step.want {
			t.Errorf("block %x: got %s, want %s", step.block, got, step.want)
		}
	}
	if got := decode(&d, "\x20"); got != "" || !d.table.isWhole {
		t.Errorf("%s: an empty table does not count as known", got)
	}
	if got := decode(&d, "\xbe"); got != errIndex.Error() {
		t.Errorf("index into an empty table: got %s", got)
	}
	d.table.forget()
	if got := decode(&d, "\x3f\x07"+insertA+"\xbf"); got != "a=1 ?=?" { // 38 octets
		t.Errorf("after a size update: got %s", got)
	}
	if got := decode(&d, insertB+"\xbe\xbf"); got != errIndex.Error() || len(d.fields) != 2 {
		t.Errorf("after the unknown entries were evicted: got %s", got)
	}
}

func TestTableAboveTheBoundIsPartlyKnown(t *testing.T) {
	d := newBlockDecoder()
	block := []byte("\x3f\xe1\xff\x3f") // 1 MiB - 1 + 31
	value := bytes.Repeat([]byte{'v'}, 100)
	for range 1000 {
		block = append(append(block, 0x40, 1, 'n', 100), value...)
		if len(block) > 60000 {
			if err := d.decode(block); err != nil {
				t.Fatal(err)
			}
			block = block[:0]
		}
	}
	if d.table.isWhole || d.table.size > maxTable || cap(d.table.text) > 2*maxTable || len(d.table.entries) > maxTable/overhead {
		t.Errorf("%+v", d.table.count)
	}
	if err := d.decode([]byte{0xff, 0x80, 0x07}); err != nil || d.fields[0].Name != nil { // 127 + 896
		t.Errorf("%v, %+v", err, d.fields)
	}
	if err := d.decode([]byte{0xbe}); err != nil || string(d.fields[0].Name) != "n" {
		t.Errorf("%v, %+v", err, d.fields)
	}
}

// TestInvalidBlocks checks that each error is found.
func TestInvalidBlocks(t *testing.T) {
	for block, want := range map[string]error{
		"\x80":              errIndex,
		"\xbe":              errIndex,
		"\xff":              errInteger,
		"\xff\x80":          errInteger,
		"\x40":              errString,
		"\x40\x05a":         errString,
		"\x40\x01a":         errString,
		"\x40\x01a\x7f":     errInteger,
		"\x7f\x00\x01a":     errIndex,
		"\x82\x20":          errUpdate,
		"\x00\x01a\x81\x00": errCode,
		"\xff\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00": errInteger,
		"\x3f\xff\xff\xff\xff\x7f":                         errInteger,
		"\x00\x7f\xff\xff\xff\xff\x07":                     errString,
	} {
		d := newBlockDecoder()
		if err := d.decode([]byte(block)); !errors.Is(err, want) {
			t.Errorf("block %x: got error %v, want %v", block, err, want)
		}
	}
}

// FuzzHeaderBlocks compares decoded blocks with blocks decoded by x/net. After a gap it
// compares only the known fields. In the input, each block begins with its length.
func FuzzHeaderBlocks(f *testing.F) {
	for seed := range uint64(20) {
		var all []byte
		for _, b := range encoded(rand.New(rand.NewPCG(seed, 1)), 12) {
			if len(b) < 256 {
				all = append(append(all, byte(len(b))), b...)
			}
		}
		f.Add(all, uint8(seed/2))
	}
	f.Fuzz(func(t *testing.T, data []byte, forget uint8) {
		if len(data) > 1<<12 {
			return
		}
		before := bytes.Clone(data)
		p := newPairing(int(forget % 16))
		for rest := data; len(rest) > 0; {
			n := min(int(rest[0]), len(rest)-1)
			if !p.decode(t, rest[1:1+n]) {
				break
			}
			rest = rest[1+n:]
		}
		if !bytes.Equal(before, data) {
			t.Fatal("the blocks were changed")
		}
		for _, d := range []*blockDecoder{&p.ours, &p.late} {
			if cap(d.table.text) > 2*maxTable || cap(d.arena) > 4*maxText || len(d.fields) > maxFields {
				t.Fatal("a buffer exceeds its limit")
			}
		}
	})
}

func BenchmarkHuffman(b *testing.B) {
	const text = "https://www.example.com/some/path?with=a&query=of-parameters"
	coded := hpack.AppendHuffmanString(nil, text)
	out := make([]byte, 0, 2*len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if out, _ = appendHuffman(out[:0], coded); len(out) != len(text) {
			b.Fatal(len(out))
		}
	}
}

func BenchmarkHuffmanOfNet(b *testing.B) {
	const text = "https://www.example.com/some/path?with=a&query=of-parameters"
	coded := hpack.AppendHuffmanString(nil, text)
	var out bytes.Buffer
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		out.Reset()
		if _, err := hpack.HuffmanDecode(&out, coded); err != nil {
			b.Fatal(err)
		}
	}
}
