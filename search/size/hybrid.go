package size

import (
	"fmt"
	"math"
	"slices"

	"vitrine"
)

// hybrid is a directed search that grows the bottleneck up or out, whichever adds
// more capacity per vCPU. The model of NewModel predicts both growths from the
// measurements so far. It measures both when either may well be the better one,
// or when the likelier one brought nothing, and continues from the one that
// brought more. It ends where the directed search does, and where neither growth
// brought anything.
type hybrid struct {
	up, out directed
	places  []place
}

// doubt is the probability of being the better growth at which both are measured.
const doubt = 0.25

func newHybrid(space Space, cfg DirectedConfig) (Search, error) {
	h := &hybrid{up: directed{space, cfg}, out: directed{space, cfg}}
	h.up.cfg.Scaling, h.out.cfg.Scaling = Up, Out
	if sizings, err := space.sizings(); err == nil {
		h.places = space.places(sizings)
	} else if !vitrine.IsBadInput(err) {
		return nil, err
	} // else there are too many to predict: every growth is measured both ways
	return h, nil
}

// A growth is one way to grow a sizing.
type growth struct {
	sizing vitrine.Sizing
	how    string
	vcpus  float64 // added
	index  int     // into the history; -1: not measured
}

func (h *hybrid) Next(history []vitrine.Measured) Step {
	if len(history) == 0 {
		return h.up.Next(nil)
	}
	at := 0
	for { // follow the path of the history
		last := history[at]
		if end := h.up.enough(last); end != "" {
			return Step{Done: true, Why: end}
		}
		name, use := Bottleneck(last.Utilization, h.up.cfg.ScaleOn)
		if name == "" {
			return h.up.Next(history[at : at+1])
		}
		found := fmt.Sprintf("%s uses the most %s at capacity in %s (%s)", name, h.up.cfg.ScaleOn, last.Sizing, h.up.share(use))
		ways, stuck := h.ways(last, name, history[at+1:], at+1)
		if len(ways) == 0 {
			return Step{Done: true, Why: fmt.Sprintf("%s, but cannot grow: %s", found, stuck)}
		}
		better, next := h.measured(history, last, ways)
		useless := better >= 0 && h.gainedNothing(history[ways[better].index], last)
		if next >= 0 && (better < 0 || useless || h.unsure(history[:ways[better].index], last, ways, better)) {
			return h.choose(history, last, ways, next, found)
		}
		if useless {
			return Step{Done: true, Why: fmt.Sprintf("%s, but %s: no growth of it brought more", found, ways[better].how)}
		}
		at = ways[better].index
	}
}

// ways returns the growths of the component that the space allows, with their
// index in the history. rest is the history from index from on.
func (h *hybrid) ways(last vitrine.Measured, name string, rest []vitrine.Measured, from int) (ways []growth, stuck string) {
	for _, d := range []directed{h.up, h.out} {
		next, grown, why := d.grow(last.Sizing, name)
		if why != "" {
			stuck = join(stuck, why)
			continue
		}
		g := growth{sizing: next, how: grown,
			index: slices.IndexFunc(rest, func(m vitrine.Measured) bool { return m.Sizing.String() == next.String() }),
			vcpus: d.space.Resources(next).VCPUs - d.space.Resources(last.Sizing).VCPUs}
		if g.index >= 0 {
			g.index += from
		}
		ways = append(ways, g)
	}
	return ways, stuck
}

func join(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return a + ", and " + b
}

// measured returns the better of the measured growths, and the first that was not
// measured; -1: none.
func (h *hybrid) measured(history []vitrine.Measured, last vitrine.Measured, ways []growth) (better, next int) {
	better, next = -1, -1
	for i, g := range ways {
		switch {
		case g.index < 0 && next < 0:
			next = i
		case g.index >= 0 && (better < 0 || h.gainPerVCPU(history, last, g) > h.gainPerVCPU(history, last, ways[better])):
			better = i
		}
	}
	return better, next
}

// gainedNothing reports whether a growth brought nothing worthwhile.
func (h *hybrid) gainedNothing(now, then vitrine.Measured) bool {
	t := h.up.cfg.Threshold
	return t >= len(now.Capacities) || !(now.Capacities[t].Rate > (1+worthwhile)*then.Capacities[t].Rate)
}

// gainPerVCPU returns the capacity that a measured growth added, per vCPU.
func (h *hybrid) gainPerVCPU(history []vitrine.Measured, last vitrine.Measured, g growth) float64 {
	now, then := history[g.index].Capacities, last.Capacities
	t := h.up.cfg.Threshold
	if t >= len(now) || t >= len(then) {
		return math.Inf(-1)
	}
	return worth(now[t].Rate-then[t].Rate, g.vcpus)
}

// worth returns capacity per vCPU. A growth that adds no vCPUs (more memory
// alone) is worth its capacity.
func worth(capacity, vcpus float64) float64 {
	if vcpus <= 1e-9 {
		return capacity
	}
	return capacity / vcpus
}

// chances returns how probable it is that each growth adds more per vCPU than the
// others, and what each is predicted to carry; nil: the model cannot tell.
func (h *hybrid) chances(history []vitrine.Measured, last vitrine.Measured, ways []growth) ([]float64, []Prediction) {
	e := gather(h.places, history, h.up.cfg.Threshold)
	if len(h.places) == 0 || len(e.sizes) == 0 {
		return nil, nil
	}
	en := fit(e, h.up.cfg.Seed)
	from, ok := en.cells(last.Sizing)
	if !ok {
		return nil, nil
	}
	to := make([][]int, len(ways))
	predictions := make([]Prediction, len(ways))
	for i, g := range ways {
		if to[i], ok = en.cells(g.sizing); !ok {
			return nil, nil
		}
		predictions[i] = en.predict(to[i])
	}
	chances := make([]float64, len(ways))
	for draw := range en.draws {
		now, _ := en.capacity(draw, from)
		best, most := 0, math.Inf(-1)
		for i, g := range ways {
			then, _ := en.capacity(draw, to[i])
			if w := worth(math.Exp(then)-math.Exp(now), g.vcpus); w > most {
				best, most = i, w
			}
		}
		chances[best] += 1 / float64(len(en.draws))
	}
	return chances, predictions
}

// unsure reports whether, before any growth was measured, another than the
// measured one might well have been the better one.
func (h *hybrid) unsure(before []vitrine.Measured, last vitrine.Measured, ways []growth, measured int) bool {
	chances, _ := h.chances(before, last, ways)
	return chances == nil || chances[measured] < 1-doubt
}

// choose returns the step that measures a growth: the likelier one first, or the
// other one, with the index next, when the first was measured already.
func (h *hybrid) choose(history []vitrine.Measured, last vitrine.Measured, ways []growth, next int, found string) Step {
	chances, predictions := h.chances(history, last, ways)
	why := "which growth brings more per vCPU is not known yet: both are measured"
	if chances != nil {
		if ways[0].index < 0 && ways[len(ways)-1].index < 0 && len(ways) > 1 && chances[1] > chances[0] {
			next = 1
		}
		why = fmt.Sprintf("likely to bring the most per vCPU (%.0f%%)", 100*chances[next])
		switch {
		case len(ways) == 1:
			why = "the only way to grow it"
		case ways[0].index >= 0 || ways[1].index >= 0:
			why = "the other growth may bring more per vCPU after all"
		}
	}
	step := Step{Sizing: ways[next].sizing, Why: fmt.Sprintf("%s: %s: %s", found, ways[next].how, why)}
	if predictions != nil {
		step.Predicted = &predictions[next]
	}
	return step
}
