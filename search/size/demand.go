package size

import "math"

// The parameters of a component. Each has a normal prior, most of them in
// logarithms.
const (
	pWork       = iota // CPU seconds a call, of one instance of the smallest flavor
	pIdle              // CPUs of an instance without load, as a share of the smallest flavor's vCPUs
	pContention        // how much dearer a call gets with the second instance
	pBend              // how contention grows with the instances
	pCoherence         // what every pair of instances adds
	pUse               // the share of its CPUs in use when it saturates
	pThreads           // most CPUs that an instance can use, relative to the largest flavor's vCPUs
	pSharp             // how sharply usable CPU bends towards that limit
	pFlavor            // exponent of a call's cost over the flavor's vCPUs
	params             // number of parameters
)

type prior struct{ mean, sd float64 }

// priors returns the prior of each parameter. Priors are wide where functions differ
// widely: contention from none to more than an instance adds, threads from a quarter
// of the largest flavor to no limit.
func priors() [params]prior {
	return [params]prior{
		pWork:       {0, 1}, // around what the first trials show
		pIdle:       {math.Log(0.03), 1.5},
		pContention: {math.Log(0.1), 1.5},
		pBend:       {math.Log(0.8), 0.35},
		pCoherence:  {math.Log(0.005), 1.5},
		pUse:        {math.Log(0.95), 0.07},
		pThreads:    {1, 1.2},
		pSharp:      {math.Log(5), 0.6},
		pFlavor:     {0.05, 0.12}, // NFV-VITAL, Table II: twice the vCPUs carry 1.7 times as much
	}
}

const (
	countSpread = 0.04  // standard deviation of a count's demand from the law of clustering, in logarithms
	cellSpread  = 0.025 // standard deviation of a cell's capacity from all the laws, in logarithms
)

// A demand is one draw of a component's parameters. All values are in standard
// deviations.
type demand struct {
	z      [params]float64 // from the middle
	counts []float64       // by count: how far its demand departs from the law
	cells  []float64       // by cell: how far its capacity departs from the laws
}

// A costing computes what a component carries from a draw. It holds what does not
// change from draw to draw.
type costing struct {
	place
	work   float64 // logarithm of the demand at which pWork is zero
	priors [params]prior
}

func (c *costing) value(d *demand, p int) float64 {
	return c.priors[p].mean + c.priors[p].sd*d.z[p]
}

// perCall returns the CPU seconds that a call of the function costs the busiest
// of the cell's instances: the demand of one instance alone, its share of the
// calls, and the price of clustering. That price is the Universal Scalability
// Law's contention and coherence (Gunther, Guerrilla Capacity Planning, 2007,
// chapter 6). Contention is raised to a power, because in many functions each
// further instance adds less than the one before. An uneven share of the calls
// shows as contention too.
func (c *costing) perCall(d *demand, at cell) float64 {
	n := float64(at.count)
	log := c.work + d.z[pWork] + c.value(d, pFlavor)*math.Log(at.vcpus/c.least)
	if at.count > 1 {
		contention := math.Exp(c.value(d, pContention)) * math.Pow(n-1, math.Exp(c.value(d, pBend)))
		coherence := math.Exp(c.value(d, pCoherence)) * n * (n - 1)
		log += math.Log1p(contention+coherence) - math.Log(n) + countSpread*d.counts[at.count]
	}
	return math.Exp(log)
}

// idle returns the CPUs that an instance uses without load.
func (c *costing) idle(d *demand) float64 { return c.least * math.Exp(c.value(d, pIdle)) }

// usable returns the CPUs that the busiest instance of the cell uses when it is
// saturated: a share of its vCPUs, bent towards its limit of threads.
func (c *costing) usable(d *demand, at cell) float64 {
	given := math.Exp(c.value(d, pUse)) * at.vcpus
	limit := c.most * math.Exp(c.value(d, pThreads))
	sharp := math.Exp(c.value(d, pSharp))
	return given * math.Exp(-math.Log1p(math.Pow(given/limit, sharp))/sharp)
}

// A rating is what a draw predicts for one cell.
type rating struct{ usable, idle, perCall float64 }

func (c *costing) rate(d *demand, at cell) rating {
	return rating{c.usable(d, at), c.idle(d), c.perCall(d, at)}
}

// carries returns the logarithm of the rate at which the cell saturates.
func (r rating) carries() float64 {
	const left = 0.01 // least share of the usable CPU that is left for calls
	return math.Log(max(r.usable-r.idle, left*r.usable) / r.perCall)
}

// logLikelihood returns the log-likelihood of the loads, up to an additive constant.
func (r rating) logLikelihood(l *line) (like float64) {
	if l.w > 0 {
		a, b := r.idle, r.perCall
		// The sum of w (y - a - b x)^2.
		like -= (l.yy + a*a*l.w + b*b*l.xx - 2*a*l.y - 2*b*l.xy + 2*a*b*l.x) / 2
	}
	if l.peak > r.usable {
		miss := math.Log(l.peak/r.usable) / readError
		like -= miss * miss / 2
	}
	return like
}

// carries returns the logarithm of the rate at which cell i saturates, with its
// own departure from the laws.
func (c *costing) carries(d *demand, i int) float64 {
	return c.rate(d, c.cells[i]).carries() + cellSpread*d.cells[i]
}
