package cpu

import (
	"fmt"
	"math"
)

// AgreeWithin is the largest allowed difference between BPF's figure and the soakers' figure, as a
// share of the soakers' figure. If the difference is larger, there is no split.
const AgreeWithin = 0.05

// A PerPacket is the CPU time that one packet took, in ns.
type PerPacket struct {
	Total      float64 `json:"total_ns"`      // by the soakers
	Background float64 `json:"background_ns"` // CPU use measured before without packets, over the time of a packet; not in Total
	Counted    float64 `json:"counted_ns"`    // by BPF, in a stream of its own; 0: not counted
	Split      *Split  `json:"split"`         // null: not given, see Why
	Why        string  `json:"why,omitempty"`
}

// A Split is CPU time per packet by who used it; ns.
type Split struct {
	User      float64 `json:"user_ns"`
	Kernel    float64 `json:"kernel_ns"`
	Interrupt float64 `json:"interrupt_ns"`
}

// Sum returns the sum of the parts.
func (s Split) Sum() float64 { return s.User + s.Kernel + s.Interrupt }

// Judge keeps the split if BPF and the soakers agree. counted is nil if BPF could not
// count; why is the reason.
func Judge(total, background float64, counted *Split, why string) PerPacket {
	p := PerPacket{Total: total, Background: background, Why: why}
	if counted == nil {
		return p
	}
	p.Counted = counted.Sum()
	if off := math.Abs(p.Counted-total) / total; !(off <= AgreeWithin) {
		p.Why = fmt.Sprintf("BPF counted %.0f ns a packet and the soakers %.0f ns, %.0f%% apart: more than %.0f%%", p.Counted, total, off*100, AgreeWithin*100)
		return p
	}
	p.Split = counted
	return p
}
