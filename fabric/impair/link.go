package impair

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"vitrine/document"
)

// A Link is what happens to packets on what joins an instance to its fabric, in
// each direction and in this order: some are lost; the rest wait for their turn
// at the rate, in a queue with an end; then they travel for the delay.
type Link struct {
	Delay   time.Duration `yaml:"delay" json:"delay,omitempty"`                                                                      // Added to each packet.
	Jitter  time.Duration `yaml:"jitter" json:"jitter,omitempty"`                                                                    // The delay varies by at most this to both sides, evenly; order is kept.
	Loss    float64       `yaml:"loss" json:"loss,omitempty" jsonschema:"minimum=0,maximum=1"`                                       // Share of packets that is lost, each by itself.
	Reorder float64       `yaml:"reorder" json:"reorder,omitempty" jsonschema:"minimum=0,maximum=1"`                                 // Share of packets that skip the delay and so overtake others.
	Rate    Rate          `yaml:"rate" json:"rate,omitempty" jsonschema:"pattern=^[0-9]+([.][0-9]+)?[kmg]?bit$"`                     // Bits of frames a second, such as 100mbit; frames count from the Ethernet header to the end of the data, without FCS.
	Queue   document.Size `yaml:"queue" json:"queue,omitempty"`                                                                      // Bytes that may wait for the rate, the packet under way among them; more are dropped at its tail. 50 ms of the rate unless said, and at least 15140.
	Way     string        `yaml:"way" json:"way,omitempty" jsonschema:"enum=both,enum=out,enum=in" jsonschema_extras:"default=both"` // Which packets: out are those that leave the instance, in those that come to it.
}

// The ways of packets on a link.
const (
	Both = "both"
	Out  = "out"
	In   = "in"
)

// frameMost is the longest frame of an Ethernet MTU of 1500 bytes.
const frameMost = 1514

const (
	delayMost  = 10 * time.Second
	queueLeast = 10 * frameMost
	queueTime  = 50 * time.Millisecond
)

// check finds what cannot be, and fills in the queue and the way. bad makes the
// error of a field.
func (l *Link) check(bad func(field, found, want string) error) error {
	for field, share := range map[string]float64{"loss": l.Loss, "reorder": l.Reorder} {
		if math.IsNaN(share) || share < 0 || share > 1 {
			return bad(field, strconv.FormatFloat(share, 'g', -1, 64), "want a share from 0 to 1")
		}
	}
	switch {
	case l.Delay < 0 || l.Delay > delayMost:
		return bad("delay", l.Delay.String(), "want 0s to "+delayMost.String())
	case l.Jitter < 0 || l.Jitter > l.Delay:
		return bad("jitter", fmt.Sprintf("%s of a delay of %s", l.Jitter, l.Delay), "want at most the delay, for no packet arrives before it was sent")
	case l.Reorder > 0 && l.Delay == 0:
		return bad("reorder", "no delay with it", "want a delay, for packets that skip it to overtake others")
	case l.Rate != 0 && (!(l.Rate >= rateLeast) || l.Rate > rateMost):
		return bad("rate", l.Rate.String(), "want 1kbit to 1000gbit a second")
	case l.Queue != 0 && l.Rate == 0:
		return bad("queue", "no rate with it", "name a rate, for packets to wait for")
	case l.Queue != 0 && l.Queue < frameMost:
		return bad("queue", fmt.Sprintf("%d bytes", l.Queue), fmt.Sprintf("want at least %d, or no full frame would pass", frameMost))
	case l.Way == "":
		l.Way = Both
	case l.Way != Both && l.Way != Out && l.Way != In:
		return bad("way", strconv.Quote(l.Way), "want both, out or in")
	}
	if l.Rate > 0 && l.Queue == 0 {
		l.Queue = max(queueLeast, document.Size(float64(l.Rate)/8*queueTime.Seconds()))
	}
	return nil
}

// plain says whether nothing happens to packets.
func (l Link) plain() bool { return l.Delay == 0 && l.Loss == 0 && l.Rate == 0 }

// on is what happens on the one way: nothing, unless the link is for it.
func (l Link) on(way string) Link {
	if l.Way != Both && l.Way != way {
		return Link{Way: way}
	}
	l.Way = way
	return l
}

// A Rate is bits a second, as text: "100mbit".
type Rate float64

const (
	rateLeast = Rate(1e3)
	rateMost  = Rate(1e12)
)

var ratePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kmg]?)bit$`)

// UnmarshalText reads a number with bit, kbit, mbit or gbit, by powers of 1000,
// as tc(8) writes rates.
func (r *Rate) UnmarshalText(text []byte) error {
	m := ratePattern.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("rate %q: want a number with bit, kbit, mbit or gbit a second, such as 100mbit", text)
	}
	number, err := strconv.ParseFloat(string(m[1]), 64)
	*r = Rate(number * map[string]float64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[string(m[2])])
	return err
}

// MarshalText writes what UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String writes the rate in the largest unit that leaves at least 1.
func (r Rate) String() string {
	unit, size := "bit", 1.0
	switch {
	case r >= 1e9:
		unit, size = "gbit", 1e9
	case r >= 1e6:
		unit, size = "mbit", 1e6
	case r >= 1e3:
		unit, size = "kbit", 1e3
	}
	return strconv.FormatFloat(float64(r)/size, 'f', -1, 64) + unit
}

// String says what the link does, for logs and reports.
func (l Link) String() string {
	var says []string
	add := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	if l.Delay > 0 {
		add("delay %s", l.Delay)
	}
	if l.Jitter > 0 {
		add("jitter %s", l.Jitter)
	}
	if l.Loss > 0 {
		add("loss %g", l.Loss)
	}
	if l.Reorder > 0 {
		add("reorder %g", l.Reorder)
	}
	if l.Rate > 0 {
		add("rate %s queue %d bytes", l.Rate, l.Queue)
	}
	if len(says) == 0 {
		return "nothing"
	}
	return strings.Join(says, ", ")
}
