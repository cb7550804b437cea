package message

import (
	"cmp"
	"context"
	"math"
	"os"
	"slices"

	"vitrine/affinity/capture"
)

// A Clock says how the clock of a file differs from that of the first file of its group.
// Files with common packets are in one group.
type Clock struct {
	File string `json:"file"`
	// Corrected says that the times of the file were corrected: by Offset at Since, and
	// by Drift from there on.
	Corrected bool    `json:"corrected"`
	Offset    float64 `json:"offset_seconds"`      // how far it is ahead
	Drift     float64 `json:"drift_ppm"`           // by which it gains
	Since     Instant `json:"since,omitempty"`     // by the clock of the group's first file
	Residual  float64 `json:"residual_seconds"`    // how far offsets of parts of the file are from that, as a root mean square
	Least     float64 `json:"least_seconds"`       // offsets from Least to Most let no packet arrive before it is sent
	Most      float64 `json:"most_seconds"`        //
	Packets   int     `json:"packets"`             // that both files have, of those that were compared
	OneWay    bool    `json:"one_way,omitempty"`   // they go in one direction: the offset includes the delay
	Reference string  `json:"reference,omitempty"` // the file that it was compared with
}

// The sample of a file's packets.
const (
	samples    = 1 << 14 // packets of a file that are compared, at most
	allSamples = 1 << 20 // the same of all files together: 32 MiB, so that 1,000 files are compared within seconds
	fewest     = 8       // minimum packets in each direction to bound an offset
	partSize   = 64      // packets of a part of a file
	tolerance  = 200_000 // ns: clocks that differ by less count as equal
	oneWayMost = int64(window)
)

// A sample is a packet of a file. All files keep the packets with the lowest hashes, so
// files that captured the same packets have the same samples.
type sample struct {
	hash uint64
	at   int64
	pair uint64 // hash of both addresses
	back bool   // from the higher address
}

// clocks are the corrections of all files.
type clocks []Clock

// findClocks reads all files once to compare their clocks. It returns nil for one file, and
// if a file is a pipe.
//
// Packets that two files captured, in both directions, bound the offset: no packet may
// arrive before it is sent. If an offset of zero is within the bounds, the times stay as
// they are, so that a delay in one direction is not taken for an offset. Otherwise the
// middle of the bounds corrects the times. Files that share no packets, such as those of
// another hour, have a reference of their own: the first of them in the list.
func findClocks(ctx context.Context, files []string) (clocks, error) {
	if len(files) < 2 {
		return nil, nil
	}
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			return nil, nil // a pipe, which cannot be read twice
		}
	}
	most := samplesOf(len(files))
	all := make(clocks, len(files))
	taken := make([][]sample, len(files))
	for i, name := range files {
		all[i].File = name
		var err error
		if taken[i], err = takeSamples(ctx, name, most); err != nil {
			return nil, err
		}
	}
	done := make([]bool, len(files))
	near := make([]struct{ to, packets int }, len(files)) // the done file with the most packets in common
	for last := 0; last >= 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		done[last] = true
		next := -1
		for i := range files {
			if done[i] {
				continue
			}
			if n := len(matches(taken[last], taken[i])); n > near[i].packets {
				near[i].to, near[i].packets = last, n
			}
			if next < 0 || near[i].packets > near[next].packets {
				next = i
			}
		}
		if last = next; next < 0 || near[next].packets == 0 {
			continue // no file is left, or this is the first one of another group
		}
		reference := near[next].to
		all[next] = compare(matches(taken[reference], taken[next]))
		all[next].File, all[next].Reference = files[next], files[reference]
		for i := range taken[next] {
			taken[next][i].at = all[next].correct(taken[next][i].at)
		}
	}
	return all, nil
}

// samplesOf returns how many packets of each file are compared. Every file is compared with every
// other one, so the time grows with the number of files and with that of all samples.
func samplesOf(files int) int { return min(samples, allSamples/files) }

// takeSamples returns the samples of a file, at most number. Of a packet that the file has several times
// within the window, such as at several interfaces, it takes the first. A damaged file gives the samples
// before the damage.
func takeSamples(ctx context.Context, name string, number int) ([]sample, error) {
	source, err := capture.Open([]string{name}, capture.Options{})
	if err != nil {
		return nil, err
	}
	defer source.Close() // opened read-only
	finder := capture.NewFinder(window, samples)
	const often = 1 << 12
	var kept []sample
	most := uint64(math.MaxUint64)
	n := 0
	for p := source.Next(); p != nil; p = source.Next() {
		if n++; n%often == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(p.Payload) == 0 {
			continue
		}
		hash := p.Identity()
		if hash > most || finder.Find(p).Kind != capture.New { // not a sample, or seen before at any interface
			continue
		}
		a, b := p.Src.Addr(), p.Dst.Addr()
		kept = append(kept, sample{hash: hash, at: p.Time, pair: hashPair(hashAddr(a), hashAddr(b)), back: b.Less(a)})
		if len(kept) == 2*number {
			kept = lowest(kept, number)
			most = kept[len(kept)-1].hash
		}
	}
	return slices.Clone(lowest(kept, number)), nil // without room for more
}

// lowest sorts samples by their hashes and returns the first ones, at most number.
func lowest(all []sample, number int) []sample {
	slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(a.hash, b.hash) })
	return all[:min(len(all), number)]
}

// A match is a packet that two files have.
type match struct {
	at    int64 // ns, by the clock of the reference
	ahead int64 // ns by which the other clock is ahead of the reference
	pair  uint64
	back  bool
}

// matches returns the packets that occur exactly once in each file, in order of time.
func matches(reference, other []sample) []match {
	var found []match
	for i, j := 0, 0; i < len(reference) && j < len(other); {
		a, b := reference[i], other[j]
		switch {
		case a.hash < b.hash:
			i++
		case a.hash > b.hash:
			j++
		default:
			ni, nj := run(reference, i), run(other, j)
			if ni == 1 && nj == 1 { // later retransmissions have equal hashes
				found = append(found, match{at: a.at, ahead: b.at - a.at, pair: a.pair, back: a.back})
			}
			i, j = i+ni, j+nj
		}
	}
	slices.SortFunc(found, func(a, b match) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.ahead, b.ahead)) })
	return found
}

// run returns how many samples from i on have the same hash.
func run(all []sample, i int) int {
	n := 1
	for i+n < len(all) && all[i+n].hash == all[i].hash {
		n++
	}
	return n
}

// A bound is the range of offsets that a part of the common packets allows, in ns.
type bound struct {
	at          int64 // middle of the part
	least, most int64
}

// compare computes the clock of a file from the packets that it has in common with the
// reference.
func compare(found []match) Clock {
	c := Clock{Packets: len(found)}
	bounds := boundsOf(found)
	if len(bounds) == 0 {
		return c.compareOneWay(found)
	}
	c.Since = Instant(bounds[0].at)
	c.Least, c.Most = math.Inf(-1), math.Inf(1)
	contradicted := false
	for _, b := range bounds {
		c.Least, c.Most = max(c.Least, float64(b.least)/1e9), min(c.Most, float64(b.most)/1e9)
		contradicted = contradicted || b.least > tolerance || b.most < -tolerance
	}
	offset, drift := fit(bounds)
	residual := residualOf(bounds, offset, drift)
	if len(bounds) < 3 || math.Abs(drift)*float64(bounds[len(bounds)-1].at-int64(c.Since)) < 2*residual {
		offset, drift = mean(bounds), 0
		residual = residualOf(bounds, offset, drift)
	}
	c.Residual = residual / 1e9
	if contradicted {
		c.Corrected, c.Offset, c.Drift = true, offset/1e9, drift*1e6
	}
	return c
}

// compareOneWay compares clocks by packets of one direction. It corrects the clock, as if
// packets took no time, only if it is so far off that copies of a packet would not be
// recognised.
func (c Clock) compareOneWay(found []match) Clock {
	if len(found) == 0 {
		return c
	}
	least := slices.MinFunc(found, func(a, b match) int { return cmp.Compare(a.ahead, b.ahead) }).ahead
	most := slices.MaxFunc(found, func(a, b match) int { return cmp.Compare(a.ahead, b.ahead) }).ahead
	c.OneWay, c.Since = true, Instant(found[0].at)
	c.Least, c.Most = float64(least)/1e9, float64(most)/1e9
	if least > oneWayMost || most < -oneWayMost {
		c.Corrected, c.Offset = true, c.Least
	}
	return c
}

// boundsOf divides packets into parts and returns the bound of each.
func boundsOf(found []match) []bound {
	byPair := map[uint64][]match{}
	for _, m := range found {
		byPair[m.pair] = append(byPair[m.pair], m)
	}
	var all []bound
	for _, one := range byPair {
		parts := max(len(one)/partSize, 1)
		for i := range parts {
			if b, ok := boundOf(one[i*len(one)/parts : (i+1)*len(one)/parts]); ok {
				all = append(all, b)
			}
		}
	}
	slices.SortFunc(all, func(a, b bound) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.least, b.least)) })
	return all
}

// boundOf returns the bound from packets between two addresses. The packets also show which
// file is closer to which address: only one of both assumptions leaves a possible offset.
func boundOf(found []match) (bound, bool) {
	var forth, back []int64
	for _, m := range found {
		if m.back {
			back = append(back, m.ahead)
		} else {
			forth = append(forth, m.ahead)
		}
	}
	if len(forth) < fewest || len(back) < fewest {
		return bound{}, false
	}
	slices.Sort(forth)
	slices.Sort(back)
	if forth[len(forth)/2] < back[len(back)/2] {
		forth, back = back, forth
	}
	const outlier = 50 // the time of one packet in so many may be wrong
	b := bound{at: found[len(found)/2].at, least: back[len(back)-1-len(back)/outlier], most: forth[len(forth)/outlier]}
	if b.least > b.most { // within the noise of the clocks
		b.least, b.most = b.most, b.least
	}
	return b, true
}

func (b bound) middle() float64 { return float64(b.least)/2 + float64(b.most)/2 }

func mean(bounds []bound) float64 {
	sum := 0.0
	for _, b := range bounds {
		sum += b.middle()
	}
	return sum / float64(len(bounds))
}

// fit returns the least-squares line through the middles of bounds: its offset at the first
// bound, and its slope.
func fit(bounds []bound) (offset, drift float64) {
	var sx, sy, sxx, sxy float64
	n := float64(len(bounds))
	for _, b := range bounds {
		x, y := float64(b.at-bounds[0].at), b.middle()
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; d > 0 {
		drift = (n*sxy - sx*sy) / d
	}
	return (sy - drift*sx) / n, drift
}

// residualOf returns the root mean square distance of the middles from a line.
func residualOf(bounds []bound, offset, drift float64) float64 {
	sum := 0.0
	for _, b := range bounds {
		d := b.middle() - offset - drift*float64(b.at-bounds[0].at)
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(bounds)))
}

// correct returns a time of the file by the clock of the first file of its group.
func (c *Clock) correct(at int64) int64 {
	if !c.Corrected {
		return at
	}
	at -= int64(c.Offset * 1e9)
	return at - int64(c.Drift/1e6*float64(at-int64(c.Since)))
}

// correct returns a function that corrects the times of all files, or nil if no clock needs
// it.
func (c clocks) correct() func(file int, at int64) int64 {
	for i := range c {
		if c[i].Corrected {
			return func(file int, at int64) int64 { return c[file].correct(at) }
		}
	}
	return nil
}

// list returns the clocks of all files. It is never nil, so that JSON has a list.
func (c clocks) list() []Clock {
	if c == nil {
		return []Clock{}
	}
	return c
}
