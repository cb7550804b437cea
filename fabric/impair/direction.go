package impair

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A direction carries frames from one interface to another over a line.
type direction struct {
	from, to *socket
	line     *line
	peers    peers

	ordered  *lane
	express  *lane // for packets that overtake; nil: none do
	aside    *lane // for packets of other hosts than the peers; nil: there are none
	latest   int64 // latest arrival so far
	batch    batch
	made     Made
	lateness *hdrhistogram.Histogram // nanoseconds
	began    int64                   // when the first packet was sent; ended: the last
	ended    int64
}

// roomLimit is the most bytes that a direction holds.
const roomLimit = 1 << 28

// room returns how many bytes a lane of a direction may have to hold. The two
// lanes of a direction that reorders share the limit.
func (l Link) room() int {
	const fastest = 10e9 / 8 // bytes per second, if no rate is set
	rate := fastest
	if l.Rate > 0 {
		rate = min(rate, float64(l.Rate)/8)
	}
	need := 2*rate*(l.Delay+l.Jitter).Seconds() + 2*float64(l.Queue)
	limit := float64(roomLimit)
	if l.Reorder > 0 {
		limit /= 2
	}
	return int(min(max(need, 1<<22), limit))
}

func newDirection(from, to *socket, instance string, link Link, seed uint64) (*direction, error) {
	d := &direction{
		from: from, to: to, line: newLine(link, seed), latest: math.MinInt64,
		made:     Made{Instance: instance, Way: link.Way, By: Emulator, Asked: link},
		lateness: newLateness(), began: math.MaxInt64,
	}
	var err error
	if d.ordered, err = newLane(link.room()); err != nil {
		return nil, err
	}
	if link.Reorder > 0 {
		if d.express, err = newLane(link.room()); err != nil {
			return nil, errors.Join(err, d.ordered.close())
		}
	}
	if len(link.Peers) > 0 {
		d.peers = peers{} // impair nothing until the peers are known
		if d.aside, err = newLane(asideRoom); err != nil {
			return nil, errors.Join(err, d.close())
		}
	}
	return d, nil
}

// asideRoom is how many bytes of packets that are not impaired wait to be sent.
const asideRoom = 1 << 22

// lanes returns the lanes that the direction may have; some are nil.
func (d *direction) lanes() [3]*lane { return [...]*lane{d.ordered, d.express, d.aside} }

func (d *direction) close() (err error) {
	for _, l := range d.lanes() {
		if l != nil {
			err = errors.Join(err, l.close())
		}
	}
	return err
}

// lineSize returns the size of a frame on a line, in bytes. If the kernel has
// still to cut the frame into segments, each segment gets a header.
func lineSize(bytes []byte) int {
	frame := len(bytes) - vnetSize
	headers, payload := int(binary.LittleEndian.Uint16(bytes[2:])), int(binary.LittleEndian.Uint16(bytes[4:]))
	if bytes[1] == 0 || payload == 0 || headers >= frame {
		return frame
	}
	return frame + headers*((frame-headers-1)/payload)
}

// take reads at most limit frames and reports whether there were any. behind is
// CLOCK_REALTIME minus the emulator's clock, in nanoseconds. An arrival is
// never later than the emulator's clock, even if the time of day was set
// meanwhile.
func (d *direction) take(now, behind int64, clock func() int64, limit int) (took bool) {
	var f frame
	for range limit {
		if !d.from.next(&f) {
			return took
		}
		took = true
		d.made.Packets++
		arrived := f.Arrived - behind
		if arrived > now { // after the round began
			arrived = min(arrived, clock())
		}
		if f.cut {
			d.made.Missed++
		} else {
			d.impair(&f, arrived)
		}
		d.from.release()
	}
	return took
}

// impair gets a frame's fate from the line, and stores the frame if it is to be
// sent.
func (d *direction) impair(f *frame, arrived int64) {
	d.latest = max(d.latest, arrived)
	if !d.peers.impairs(f.Bytes[vnetSize:], d.made.Way) {
		d.made.Aside++
		d.store(d.aside, f, d.latest)
		return
	}
	leaves, what := d.line.offer(d.latest, lineSize(f.Bytes))
	to := d.ordered
	switch what {
	case lost:
		d.made.Lost++
		return
	case dropped:
		d.made.Dropped++
		return
	case overtakes:
		d.made.Overtook++
		to = d.express
	case kept:
	}
	d.store(to, f, leaves)
}

func (d *direction) store(to *lane, f *frame, leaves int64) {
	room := to.reserve(f.length())
	if room == nil {
		d.made.Missed++
		return
	}
	f.copyTo(room)
	to.commit(len(room), leaves)
}

// give sends the packets that are due, at most one batch of each lane. It
// reports whether there were any.
func (d *direction) give(now int64, clock func() int64) (gave bool) {
	for _, l := range d.lanes() {
		if l != nil {
			gave = d.giveFrom(l, now, clock) || gave
		}
	}
	return gave
}

func (d *direction) giveFrom(l *lane, now int64, clock func() int64) bool {
	n := 0
	for ; n < batchSize; n++ {
		p := l.peek(n)
		if p == nil || p.leaves > now {
			break
		}
		d.batch.set(n, l.bytes[p.at:p.at+p.length])
	}
	if n == 0 {
		return false
	}
	refused := d.batch.send(d.to, n)
	sent := clock()
	for i := range n {
		if refused>>i&1 == 1 {
			d.made.Refused++
			continue
		}
		p := l.peek(i)
		d.made.Sent++
		d.made.Bytes += int64(lineSize(l.bytes[p.at : p.at+p.length]))
		d.began, d.ended = min(d.began, sent), sent
		if l != d.aside {
			_ = d.lateness.RecordValue(min(max(sent-p.leaves, 0), maxLateness))
		}
	}
	l.pop(n)
	return true
}

// due returns when the next packet leaves, or math.MaxInt64 if there is none.
func (d *direction) due() int64 {
	due := int64(math.MaxInt64)
	for _, l := range d.lanes() {
		if l == nil {
			continue
		}
		if p := l.peek(0); p != nil {
			due = min(due, p.leaves)
		}
	}
	return due
}

// result returns the counts so far.
func (d *direction) result() (Made, error) {
	missed, err := d.from.Dropped()
	if err != nil {
		return Made{}, err
	}
	d.made.Missed += int64(missed)
	d.made.Packets += int64(missed)
	m := d.made
	m.Lateness = quantiles(d.lateness)
	if took := d.ended - d.began; took > 0 && d.ended > 0 {
		m.Rate = Rate(float64(m.Bytes) * 8 / (float64(took) / 1e9))
	}
	return m, nil
}
