package sim

import "vitrine"

// IMS returns a function like the clustered IMS of NFV-VITAL, section II. Its
// flavors are those of Table I. Its demands and clustering penalties give
// capacities in the order of Table II, and the directed search takes the path of
// section III.B.1. Calls are reg-dereg. It has no noise.
func IMS(seed uint64) *Function {
	const mib, gib = 1 << 20, 1 << 30
	component := func(name, short string, rate, cluster float64) Component {
		return Component{
			Component: vitrine.Component{Name: name, Short: short, Scalable: true},
			Demand:    1 / rate, Cluster: cluster,
			Memory: 400 * mib, MemoryPerCall: 50 << 10, BytesPerCall: 6 << 10,
		}
	}
	return &Function{
		Components: []Component{
			component("bono", "bn", 750, 0),
			component("sprout", "sp", 320, 1.15),
			component("homestead", "hs", 430, 2.2),
		},
		Flavors: []vitrine.Flavor{
			{Name: "small", VCPUs: 1, Memory: 2 * gib},
			{Name: "medium", VCPUs: 2, Memory: 4 * gib},
			{Name: "large", VCPUs: 4, Memory: 8 * gib},
		},
		Collapse: 2,
		Seed:     seed,
	}
}
