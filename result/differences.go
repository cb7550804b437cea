package result

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// A Difference is a property that two runs or two hosts do not share. Both texts name the property,
// for people: "turbo on", "turbo unknown".
type Difference struct{ Then, Now string }

// differences collects every Difference.
type differences []Difference

// add adds a property if its texts differ.
func (d *differences) add(then, now string) {
	if then != now {
		*d = append(*d, Difference{then, now})
	}
}

// named is like add, for values that do not name their property.
func (d *differences) named(name, then, now string) {
	d.add(name+" "+cmp.Or(then, "unknown"), name+" "+cmp.Or(now, "unknown"))
}

// MachineDifferences returns what two machines, real or virtual, do not share. A capacity measured on
// one says nothing about the other.
func (h Host) MachineDifferences(now Host) []Difference {
	var d differences
	d.add(h.Machine(), now.Machine())
	d.named("virtualization", h.Virtualization, now.Virtualization)
	return d
}

// Differences returns what two hosts do not share, of what may change a capacity.
func (h Host) Differences(now Host) []Difference {
	d := differences(h.MachineDifferences(now))
	d.named("Linux", h.Kernel, now.Kernel)
	d.named("the host", h.Name, now.Name)
	d.named("the CPU frequency governor", h.Governor, now.Governor)
	d.named("turbo", h.Turbo, now.Turbo)
	d.named("SMT", h.SMT, now.SMT)
	return d
}

// Differences returns what two runs do not share: the function, the programs, the host and the place on
// it. SameSpecs compares the files.
func (m Manifest) Differences(now Manifest) []Difference {
	var d differences
	d.named("the function", m.VNF, now.VNF)
	d.add(build(m.Tool), build(now.Tool))
	d = append(d, m.Host.Differences(now.Host)...)
	d.add(m.CPUs.String(), now.CPUs.String())
	d.named("the fabric", strings.Join(m.Fabrics, ", "), strings.Join(now.Fabrics, ", "))
	d.named("the generator", m.Generator.build(), now.Generator.build())
	for _, name := range slices.Sorted(maps.Keys(now.Substrates)) {
		if was, is := m.Substrates[name], now.Substrates[name]; was != "" && is != "" { // nothing runs on a substrate whose version is unknown
			d.named(name, was, is)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.FabricVersions)) {
		if was, is := m.FabricVersions[name], now.FabricVersions[name]; was != "" && is != "" { // an older program did not record it
			d.add(was, is)
		}
	}
	return d
}

func (g Generator) build() string { return strings.TrimSpace(g.Name + " " + build(g.Version)) }

// build returns a program's version without the marks of a changed source tree. A run of `vitrine
// reproduce` changes the tree: it counts itself in the history of its exhibit.
func build(version string) string { return strings.ReplaceAll(version, "-dirty", "") }
