package main

import (
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"

	"vitrine"
	"vitrine/search/sim"
)

// scikitVersion is the PyPI version of scikit-learn, whose Gaussian process
// searches the sizes for comparison. scikit-learn is well maintained and
// installs as a wheel. scikit-optimize has the whole search, but was last
// released in 2024.
const scikitVersion = "1.9.1"

//go:embed bayes/bridge.py
var bayesSource []byte

func bayesPeer() pythonPeer {
	return pythonPeer{name: "Bayesian optimisation", pkg: "scikit-learn==" + scikitVersion, script: bayesSource,
		settings: []string{"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"}}
}

// A bayes is a Bayesian optimisation in its own process.
type bayes struct{ *dialogue }

// bayesStart is the number of sizings that the peer tries before its first Gaussian process: the
// smallest, and others at random.
const bayesStart = 5

// search returns the number of deployments until the peer asks for a sizing that enough accepts,
// or most if that takes longer. enough is an oracle that the peer does not see, because the peer
// has no stopping rule of its own and does not measure its winner again.
func (b bayes) search(c sim.Cluster, sizings []vitrine.Sizing, seed uint64, measure func(vitrine.Sizing) float64,
	enough func(vitrine.Sizing) bool, most int) (int, error) {
	random := rand.New(rand.NewPCG(seed, 6))
	start := append([]int{0}, random.Perm(len(sizings) - 1)[:bayesStart-1]...)
	for i := range start[1:] {
		start[i+1]++
	}
	var message any = map[string]any{"features": features(c, sizings), "start": start, "seed": seed}
	for n := 1; n <= most; n++ {
		if err := b.send(message); err != nil {
			return 0, fmt.Errorf("the Bayesian optimisation: %w", err)
		}
		var asked struct{ Next int }
		if err := b.receive(&asked); err != nil {
			return 0, fmt.Errorf("the Bayesian optimisation: %w", err)
		}
		if asked.Next < 0 || enough(sizings[asked.Next]) {
			return n, nil
		}
		message = map[string]float64{"value": math.Log(measure(sizings[asked.Next]))}
	}
	return most, nil
}

// features returns the inputs of the Gaussian process: for each component, the
// logarithms of its total vCPUs and of its instances.
func features(c sim.Cluster, sizings []vitrine.Sizing) [][]float64 {
	var all [][]float64
	for _, s := range sizings {
		var row []float64
		for _, p := range s {
			row = append(row, math.Log2(c.Resources(vitrine.Sizing{p}).VCPUs), math.Log2(float64(p.Count)))
		}
		all = append(all, row)
	}
	return all
}
