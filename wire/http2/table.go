package http2

// A tableEntry is one entry of the dynamic table.
type tableEntry struct {
	at          uint64 // offset of its name in the text of all entries so far; its value follows
	name, value uint32 // lengths
	nameless    bool   // its name refers to an unknown entry
}

// Bounds and sizes of the dynamic table, in octets.
const (
	// maxTable is the maximum size of a table that is kept: browsers and
	// servers use 4 KiB to 64 KiB. Of a larger table only the newest entries
	// are known.
	maxTable     = 64 << 10
	defaultTable = 4 << 10 // RFC 9113 section 6.5.2
	overhead     = 32      // of an entry, beside its name and value (RFC 7541 section 4.1)
)

// A table is the known part of the dynamic table of one direction (RFC 7541
// section 2.3.2): its newest entries. Their indexes are certain, because
// indexes count from the newest entry.
type table struct {
	text    []byte // names and values, the oldest first
	base    uint64 // the offset of text[0] in the text of all entries so far
	entries []tableEntry
	newest  int // in entries, a ring whose length is a power of two
	count   int
	size    int // of the entries; too small while one is nameless

	max     int64 // the sender's bound of its table
	isSized bool  // max is certain
	isWhole bool  // the entries are the sender's whole table
}

func newTable() table { return table{max: defaultTable, isSized: true, isWhole: true} }

// forget drops all entries, because entries that followed them are unknown. The
// bound becomes the maximum. To keep an entry for too long is harmless, because
// no sender refers to an entry that it has evicted.
func (t *table) forget() {
	t.drop(t.count)
	t.max, t.isSized, t.isWhole = maxTable, false, false
}

// resize handles a size update (RFC 7541 section 6.3).
func (t *table) resize(bound uint64) {
	t.max, t.isSized = int64(bound), true
	t.evict(0)
	if t.max < overhead { // no entry fits
		t.isWhole = true
	}
}

func (t *table) limit() int { return int(min(t.max, maxTable)) }

// evict drops the oldest entries until a new entry of the given size fits (RFC
// 7541 sections 4.3 and 4.4). Unknown entries are older than all known ones, so
// the sender evicts them first.
func (t *table) evict(size int) {
	limit := t.limit()
	if t.size+size <= limit {
		return
	}
	t.isWhole = t.isSized && t.max <= maxTable
	n := 0
	for kept := t.size; n < t.count && kept+size > limit; n++ {
		kept -= t.entry(t.count - n).size()
	}
	t.drop(n)
}

// drop drops the n oldest entries.
func (t *table) drop(n int) {
	for range n {
		t.size -= t.entry(t.count).size()
		t.count--
	}
	if t.count == 0 {
		t.base, t.text = t.base+uint64(len(t.text)), t.text[:0]
	}
}

func (e *tableEntry) size() int { return overhead + int(e.name) + int(e.value) }

// entry returns the i-th newest entry, from 1 on.
func (t *table) entry(i int) *tableEntry {
	return &t.entries[(t.newest-i+1)&(len(t.entries)-1)]
}

// find returns the i-th newest entry, from 1 on. A nil name is unknown. find
// returns false if the table has no such entry.
func (t *table) find(i uint64) (name, value []byte, ok bool) {
	if i > uint64(t.count) {
		return nil, nil, !t.isWhole
	}
	e := t.entry(int(i))
	from := int(e.at - t.base)
	middle := from + int(e.name)
	end := middle + int(e.value)
	if !e.nameless {
		name = t.text[from:middle:middle]
	}
	return name, t.text[middle:end:end], true
}

// insert inserts an entry. A nil name is unknown. An entry that is larger than
// the table empties the table (RFC 7541 section 4.4).
func (t *table) insert(name, value []byte) {
	e := tableEntry{name: uint32(len(name)), value: uint32(len(value)), nameless: name == nil}
	size := e.size()
	t.evict(size)
	if size > t.limit() {
		return
	}
	t.reserve(len(name) + len(value))
	e.at = t.base + uint64(len(t.text))
	t.text = append(append(t.text, name...), value...)
	t.newest = (t.newest + 1) & (len(t.entries) - 1)
	t.entries[t.newest] = e
	t.count, t.size = t.count+1, t.size+size
}

// reserve makes room for one more entry. Both buffers grow by doubling, text to
// at most 128 KiB. If at most half of text is in use, reserve moves that to the
// front instead of growing text. text is no ring, so each name and value is
// contiguous.
func (t *table) reserve(octets int) {
	if t.count == len(t.entries) {
		grown := make([]tableEntry, max(16, 2*len(t.entries)))
		for i := range t.count {
			grown[i] = *t.entry(t.count - i)
		}
		t.entries, t.newest = grown, (t.count-1)&(len(grown)-1)
	}
	if t.text == nil { // views of it are names, and a nil name is unknown
		t.text = make([]byte, 0, 1<<10)
	}
	if len(t.text)+octets <= cap(t.text) {
		return
	}
	used := t.text
	if t.count > 0 {
		used = t.text[t.entry(t.count).at-t.base:]
	}
	t.base += uint64(len(t.text) - len(used))
	if 2*(len(used)+octets) <= cap(t.text) {
		t.text = t.text[:copy(t.text[:cap(t.text)], used)]
		return
	}
	size := cap(t.text)
	for size < 2*(len(used)+octets) {
		size *= 2
	}
	t.text = append(make([]byte, 0, size), used...)
}

// A pair is an entry of the static table.
type pair struct{ name, value []byte }

// static is the static table (RFC 7541 appendix A). Its first entry has the
// index 1. It is read-only.
var static = func() (pairs [61]pair) {
	for i, of := range [61][2]string{
		{":authority"}, {":method", "GET"}, {":method", "POST"}, {":path", "/"}, {":path", "/index.html"},
		{":scheme", "http"}, {":scheme", "https"}, {":status", "200"}, {":status", "204"}, {":status", "206"},
		{":status", "304"}, {":status", "400"}, {":status", "404"}, {":status", "500"}, {"accept-charset"},
		{"accept-encoding", "gzip, deflate"}, {"accept-language"}, {"accept-ranges"}, {"accept"}, {"access-control-allow-origin"},
		{"age"}, {"allow"}, {"authorization"}, {"cache-control"}, {"content-disposition"},
		{"content-encoding"}, {"content-language"}, {"content-length"}, {"content-location"}, {"content-range"},
		{"content-type"}, {"cookie"}, {"date"}, {"etag"}, {"expect"},
		{"expires"}, {"from"}, {"host"}, {"if-match"}, {"if-modified-since"},
		{"if-none-match"}, {"if-range"}, {"if-unmodified-since"}, {"last-modified"}, {"link"},
		{"location"}, {"max-forwards"}, {"proxy-authenticate"}, {"proxy-authorization"}, {"range"},
		{"referer"}, {"refresh"}, {"retry-after"}, {"server"}, {"set-cookie"},
		{"strict-transport-security"}, {"transfer-encoding"}, {"user-agent"}, {"vary"}, {"via"},
		{"www-authenticate"},
	} {
		name, value := []byte(of[0]), []byte(of[1])
		pairs[i] = pair{name[:len(name):len(name)], value[:len(value):len(value)]}
	}
	return pairs
}()
