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

// A Link is what happens to packets between an instance and its fabric, in each
// direction and in this order. Some packets are lost. The rest wait in a
// bounded queue for their turn at the rate. Then they travel for the delay.
type Link struct {
	Delay   time.Duration `yaml:"delay" json:"delay,omitempty"`                                                                      // Added to each packet.
	Jitter  time.Duration `yaml:"jitter" json:"jitter,omitempty"`                                                                    // The delay varies uniformly by at most this to either side; order is kept.
	Loss    float64       `yaml:"loss" json:"loss,omitempty" jsonschema:"minimum=0,maximum=1"`                                       // Share of packets that are lost, each independently.
	Reorder float64       `yaml:"reorder" json:"reorder,omitempty" jsonschema:"minimum=0,maximum=1"`                                 // Share of packets that skip the delay and so overtake others.
	Rate    Rate          `yaml:"rate" json:"rate,omitempty" jsonschema:"pattern=^[0-9]+([.][0-9]+)?[kmg]?bit$"`                     // Bits of frames per second, such as 100mbit; frames count from the Ethernet header to the end of the data, without FCS.
	Queue   document.Size `yaml:"queue" json:"queue,omitempty"`                                                                      // Bytes that may wait for the rate, including the packet being sent; more are dropped at its tail. The default is 50 ms of the rate, and at least 15140.
	Peers   []string      `yaml:"peers" json:"peers,omitempty"`                                                                      // Generator, components or instances: only packets to and from these are impaired, the rest passes at once. Left out: all are.
	Way     string        `yaml:"way" json:"way,omitempty" jsonschema:"enum=both,enum=out,enum=in" jsonschema_extras:"default=both"` // Which packets: out are those that leave the instance, in are those that arrive at it.
}

// Values of Link.Way.
const (
	Both = "both"
	Out  = "out"
	In   = "in"
)

// maxFrame is the longest frame with an Ethernet MTU of 1500, in bytes.
const maxFrame = 1514

const (
	maxDelay  = 10 * time.Second
	minQueue  = 10 * maxFrame
	queueTime = 50 * time.Millisecond
)

// check checks the link and fills in the queue and the way. bad makes the error
// of a field.
func (l *Link) check(bad func(field, found, want string) error) error {
	for field, share := range map[string]float64{"loss": l.Loss, "reorder": l.Reorder} {
		if math.IsNaN(share) || share < 0 || share > 1 {
			return bad(field, strconv.FormatFloat(share, 'g', -1, 64), "want a share from 0 to 1")
		}
	}
	switch {
	case l.Delay < 0 || l.Delay > maxDelay:
		return bad("delay", l.Delay.String(), "want 0s to "+maxDelay.String())
	case l.Jitter < 0 || l.Jitter > l.Delay:
		return bad("jitter", fmt.Sprintf("%s of a delay of %s", l.Jitter, l.Delay), "want at most the delay, because no packet arrives before it is sent")
	case l.Reorder > 0 && l.Delay == 0:
		return bad("reorder", "no delay with it", "want a delay: packets overtake others by skipping it")
	case l.Rate != 0 && (!(l.Rate >= minRate) || l.Rate > maxRate):
		return bad("rate", l.Rate.String(), "want 1kbit to 1000gbit a second")
	case l.Queue != 0 && l.Rate == 0:
		return bad("queue", "no rate with it", "want a rate: packets wait in the queue for it")
	case l.Queue != 0 && l.Queue < maxFrame:
		return bad("queue", fmt.Sprintf("%d bytes", l.Queue), fmt.Sprintf("want at least %d, or no full frame would pass", maxFrame))
	case l.Way == "":
		l.Way = Both
	case l.Way != Both && l.Way != Out && l.Way != In:
		return bad("way", strconv.Quote(l.Way), "want both, out or in")
	}
	if l.Rate > 0 && l.Queue == 0 {
		l.Queue = max(minQueue, document.Size(float64(l.Rate)/8*queueTime.Seconds()))
	}
	return nil
}

// isPlain reports whether the link does nothing to packets.
func (l Link) isPlain() bool { return l.Delay == 0 && l.Loss == 0 && l.Rate == 0 }

// on returns what the link does in one direction: nothing, if the link is for
// the other.
func (l Link) on(way string) Link {
	if l.Way != Both && l.Way != way {
		return Link{Way: way}
	}
	l.Way = way
	return l
}

// A Rate is in bits per second; as text: "100mbit".
type Rate float64

const (
	minRate = Rate(1e3)
	maxRate = Rate(1e12)
)

var ratePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kmg]?)bit$`)

// UnmarshalText parses a number with bit, kbit, mbit or gbit, by powers of
// 1000, as tc(8) writes rates.
func (r *Rate) UnmarshalText(text []byte) error {
	m := ratePattern.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("rate %q: want a number with bit, kbit, mbit or gbit a second, such as 100mbit", text)
	}
	number, err := strconv.ParseFloat(string(m[1]), 64)
	if err == nil && number == 0 { // a Link's rate of 0 is no limit
		err = fmt.Errorf("rate %q: want more than 0, or no rate: then there is no limit", text)
	}
	*r = Rate(number * map[string]float64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[string(m[2])])
	return err
}

// MarshalText returns the text that UnmarshalText parses.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String returns the rate in the largest unit in which it is at least 1.
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

// String describes the link, for logs and reports.
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
	if len(l.Peers) > 0 {
		add("only with %s", strings.Join(l.Peers, " and "))
	}
	return strings.Join(says, ", ")
}
