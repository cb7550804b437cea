package main

import (
	"fmt"
	"strings"
)

// A constant of the adaptive search, with a lower and a higher value to try.
type constant struct {
	name                 string // NAME, FUNCTION.NAME if it is local, or a description of a number without a name
	file                 string // below search/rate
	text                 string // source text, with %[1]s in place of the value
	value, lower, higher string
	in                   setting
}

// A setting changes how the servers are searched. It is for constants that have no effect in the
// ordinary setting. Every search is compared with the unchanged search in the same setting.
type setting string

const (
	ordinary    setting = ""
	stateful    setting = "stateful functions"
	weak        setting = "a weak generator"
	neighbours  setting = "a prior"
	twoMeasured setting = "two thresholds"
)

// settings returns the settings in the order of the page's tables.
func settings() []setting { return []setting{ordinary, stateful, weak, neighbours, twoMeasured} }

// changes returns the setting's replacements in search/sim/queue. Each setting sets Config.Repeat
// to 1, because 5 would hide the effect of leastDeployments.
func (s setting) changes() []change {
	const ground, config = "sim/queue/ground.go", "Repeat: 5, Thresholds: []float64{0.9},"
	const repeat = "Repeat: 1, Thresholds: []float64{0.9},"
	switch s {
	case stateful:
		return []change{{ground, config, repeat + " Stateful: true,"}}
	case weak:
		return []change{{ground, config, repeat}, {"sim/queue/deployment.go", "o.Offered = o.Scheduled", `o.Offered = o.Scheduled
	if most := 1.2 * d.Capacity(t.Sizing, 0.9); t.Rate > most {
		o.Valid, o.Offered = false, int64(float64(o.Scheduled)*most/t.Rate)
	}`}}
	case neighbours:
		const run = "results[k] = queue.Tuning.Run(family, k).Search(rate.NewAdaptive(cfg), cfg)"
		return []change{{ground, config, repeat}, {"sim/queue/coverage_test.go", run, `s, cfg := queue.Tuning.Run(family, k), cfg
				about := []float64{0.6, 1.6}[k%2] * s.Capacity(queue.Sizing(), 0.9)
				cfg.Prior = rate.Prior{Low: about / 1.2, High: about * 1.2}
				results[k] = s.Search(rate.NewAdaptive(cfg), cfg)`}}
	case twoMeasured:
		return []change{{ground, config, "Repeat: 1, Thresholds: []float64{0.95, 0.9},"}}
	}
	return []change{{ground, config, repeat}}
}

// explained describes the setting for a table's title. The ordinary setting has no description.
func (s setting) explained() string {
	return map[setting]string{
		stateful:    "with `stateful: true`",
		weak:        "with a generator that offers at most 1.2 times the capacity",
		neighbours:  "with a prior around 0.6 or 1.6 times the capacity",
		twoMeasured: "with the thresholds 0.95 and 0.9, judged at 0.95",
	}[s]
}

// at returns the ablation that sets the constant to the value.
func (c constant) at(value string) ablation {
	return ablation{
		name: c.name + " " + strings.TrimSpace(value), in: c.in, under: c.in.changes(), runs: constantsRuns,
		file: c.file, old: fmt.Sprintf(c.text, c.value), new: fmt.Sprintf(c.text, value),
	}
}

// whole returns the unchanged search in the setting.
func (s setting) whole() ablation {
	return ablation{name: untouched, in: s, under: s.changes(), runs: constantsRuns}
}

// constants returns the constants to try, each with a setting in which it has an effect.
func constants() []constant {
	return []constant{
		{"leastDeployments", "adaptive.go", "leastDeployments  = %[1]s ", "5", "3", "8", ordinary},
		{"mostDeployments", "adaptive.go", "mostDeployments   = %[1]s ", "24", "12", "48", ordinary},
		{"mostTrials", "adaptive.go", "mostTrials        = %[1]s ", "240", "120", "480", ordinary},
		{"deploymentsToTell", "adaptive.go", "deploymentsToTell = %[1]s ", "3", "2", "6", ordinary},
		{"mostToTell", "adaptive.go", "mostToTell        = %[1]s ", "8", "4", "16", ordinary},
		{"mostOnOne", "adaptive.go", "mostOnOne         = %[1]s ", "14", "7", "28", ordinary},
		{"extensions", "adaptive.go", "extensions        = %[1]s ", "3", "1", "6", ordinary},
		{"longestWindow", "adaptive.go", "longestWindow     = %[1]s ", "16", "8", "32", ordinary},
		{"enough.early", "adaptive.go", "const early, hopeless = %[1]s, 3", "16", "8", "24", ordinary},
		{"enough.hopeless", "adaptive.go", "const early, hopeless = 16, %[1]s", "3", "1.5", "6", ordinary},
		{"pessimism.tail", "adaptive.go", "const tail = %[1]s\n\tfreedom", "0.25", "0.1", "0.5", ordinary},

		{"slopeOf.least", "adaptive_between.go", "const least = %[1]s ", "0.3", "0.15", "0.6", ordinary},
		{"sequential", "adaptive_between.go", "const sequential = %[1]s", "1.25", "1.1", "1.5", ordinary},
		{"unseen", "adaptive_between.go", "const unseen = %[1]s", "0.2", "0.1", "0.4", ordinary},
		{"the half-way of estimate", "adaptive_between.go", `below = math.Hypot(half, k*(most-spread%[1]s))
		above = math.Hypot(half, k*spread%[1]s)
	}
	// All samples share what trials cannot show, such as a slowly growing
	// backlog.
	below, above = math.Hypot(below, unseen*s.precision), math.Hypot(above, unseen*s.precision)
	x := mean - k*spread%[1]s`, "/2", "/4", "*3/4", ordinary},
		{"the place of a sample without a bracket", "adaptive_between.go", `b.low+s.precision%[1]s)
		default:
			below++
			s.values = append(s.values, b.high-s.precision%[1]s)`, "/4", "/8", "/2", ordinary},
		{"the reach of crossing", "adaptive_between.go", "about := max(precision, b.high-b.low) / %[1]s", "2", "4", "1", ordinary},
		{"the limit of crossing", "adaptive_between.go", "return min(max(sum/weight, b.low-%[1]s*about), b.high+%[1]s*about)", "4", "2", "8", ordinary},

		{"findCeiling.short", "adaptive_ceiling.go", "const short = %[1]s ", "0.985", "0.97", "0.999", weak},
		{"findCeiling.below", "adaptive_ceiling.go", "const below = %[1]s ", "0.97", "0.94", "0.985", weak},
		{"the reports of findCeiling", "adaptive_ceiling.go", "reports >= %[1]s\n", "2", "1", "4", weak},
		{"the margin of findCeiling", "adaptive_ceiling.go", "offers > %[1]s*valid", "1.03", "1.015", "1.06", weak},

		{"straight.least", "adaptive_climb.go", "const least, chance = %[1]s, 1.5", "0.2", "0.1", "0.4", ordinary},
		{"straight.chance", "adaptive_climb.go", "const least, chance = 0.2, %[1]s", "1.5", "0.75", "3", ordinary},
		{"rounding", "adaptive_climb.go", "const rounding = %[1]s", "1e-3", "5e-4", "2e-3", ordinary},
		{"the start at a lower threshold", "adaptive_climb.go", "c.center(i)-step%[1]s)", "/2", "/4", "*1", twoMeasured},
		{"the reach of near", "adaptive_climb.go", "< %[1]s*step })", "2.5", "1.25", "5", ordinary},
		{"shift.golden", "adaptive_climb.go", "const golden = %[1]s", "0.6180339887498949", "0.5", "0.75", ordinary},
		{"the steps below of an ascent", "adaptive_ascent.go", "c.foot(known)-(%[1]s+d.shift())*step", "1", "0.5", "2", stateful},
		{"the steps below a group of samples", "adaptive_ascent.go", "known[at]-%[1]s*step", "2", "1", "4", stateful},
		{"the reach of isClose", "adaptive_ascent.go", "x+%[1]s*step", "1.5", "1", "3", stateful},
		{"tooHigh.lowest", "adaptive_ascent.go", "const lowest = %[1]s ", "1.5", "0.5", "2.5", stateful},
		{"the growth of the lead", "adaptive.go", "%[1]s*c.lead+step", "2", "1", "4", stateful},
		{"steps.widest", "adaptive_climb.go", "const widest = %[1]s", "0.3", "0.15", "0.6", ordinary},
		{"the finest bracket", "adaptive_climb.go", "widest), max(p, sd) / %[1]s", "4", "2", "8", ordinary},
		{"the climbs that size steps", "adaptive_climb.go", "if len(c.climbs) >= %[1]s {", "3", "2", "6", ordinary},
		{"cold.later", "adaptive_climb.go", "later     = %[1]s ", "0.98", "0.9", "0.995", ordinary},
		{"cold.tolerable", "adaptive_climb.go", "tolerable = %[1]s ", "0.4", "0.2", "0.8", ordinary},
		{"matters.share", "adaptive_climb.go", "const share = %[1]s ", "0.1", "0.05", "0.2", ordinary},
		{"likely", "adaptive_climb.go", "const likely = %[1]s", "0.9", "0.8", "0.95", ordinary},
		{"warm.windows", "adaptive_climb.go", "const windows = %[1]s\n", "8", "4", "16", ordinary},
		{"overloading", "adaptive_climb.go", "const overloading = %[1]s", "1.3", "1.15", "1.6", ordinary},
		{"the width of half the capacity", "adaptive_climb.go", "r.rate > %[1]s*rate", "0.35*rate && r.rate < 0.65", "0.45*rate && r.rate < 0.55", "0.2*rate && r.rate < 0.8", ordinary},

		{"scout.most", "adaptive_scout.go", "const most, near = %[1]s, 1.2", "40", "20", "80", ordinary},
		{"scout.near", "adaptive_scout.go", "const most, near = 40, %[1]s", "1.2", "1.1", "1.4", ordinary},
		{"first.middle", "adaptive_scout.go", "const middle, careful = %[1]s, 0.35", "0.5", "0.25", "0.75", ordinary},
		{"first.careful", "adaptive_scout.go", "const middle, careful = 0.5, %[1]s", "0.35", "0.2", "0.5", stateful},
		{"further.up", "adaptive_scout.go", "const up, down, apart = %[1]s, 6, 1.05", "2", "1.4", "4", ordinary},
		{"further.down", "adaptive_scout.go", "const up, down, apart = 2, %[1]s, 1.05", "6", "3", "12", ordinary},
		{"further.apart", "adaptive_scout.go", "const up, down, apart = 2, 6, %[1]s", "1.05", "1.02", "1.1", ordinary},
		{"the step down of further", "adaptive_scout.go", "high/%[1]s)", "1.1", "1.05", "1.2", ordinary},
		{"the step of further with a prior", "adaptive_scout.go", "step = %[1]s\n", "math.Sqrt(up)", "math.Sqrt(math.Sqrt(up))", "up", neighbours},

		{"the least distance of two states", "adaptive_states.go", "m.upper-m.lower <= precision%[1]s ", "/2", "/4", "*1", ordinary},
		{"the iterations of mixtureOf", "adaptive_states.go", "for range %[1]s {", "50", "25", "100", ordinary},
		{"the majority of stay", "adaptive_states.go", "failed > %[1]s*passed", "2", "1", "4", ordinary},
		{"the rate between two states", "adaptive_states.go", "math.Exp(%[1]s))", "(m.lower + 2*m.upper) / 3", "(m.lower + m.upper) / 2", "(m.lower + 5*m.upper) / 6", ordinary},

		{"the cuts of read", "adaptive_steady.go", "range []float64{%[1]s} {", "0, 1. / 3, 2. / 3", "0, 1. / 2", "0, 1. / 4, 1. / 2, 3. / 4", ordinary},
		{"balanced.ends", "adaptive_steady.go", "const ends = %[1]s ", "5", "2", "10", ordinary},
		{"sure", "adaptive_steady.go", "const sure = %[1]s", "0.1", "0.05", "0.2", ordinary},
		{"growth.most", "adaptive_steady.go", "const fewest, most, perCosine = 12, %[1]s, 5", "12", "6", "24", ordinary},
		{"growth.perCosine", "adaptive_steady.go", "const fewest, most, perCosine = 12, 12, %[1]s", "5", "2", "10", ordinary},

		{"rest.most", "adaptive_trial.go", "const most = %[1]s * time.Second", "5", "2", "10", ordinary},
		{"the doubling of measure", "adaptive_trial.go", "window = c.atMost(%[1]s)", "2 * window", "3 * window / 2", "4 * window", ordinary},
		{"window.longest", "adaptive_trial.go", "const longest = %[1]s\n", "8", "4", "16", ordinary},
		{"timeForBacklog.windows", "adaptive_trial.go", "const windows, needs = %[1]s, 6", "3", "1", "6", ordinary},
		{"timeForBacklog.needs", "adaptive_trial.go", "const windows, needs = 3, %[1]s", "6", "3", "12", ordinary},
		{"timeForStalls.stall", "adaptive_trial.go", "const stall = %[1]s ", "2.4", "1.2", "4.8", ordinary},
		{"needed.calls", "adaptive_trial.go", "const calls, least = %[1]s, 100", "9", "4.5", "18", ordinary},
		{"the digits of round", "adaptive_trial.go", "math.Floor(math.Log10(rate))-%[1]s)", "3", "2", "4", ordinary},
	}
}
