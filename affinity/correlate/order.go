package correlate

// maxOrders bounds the pairs of names in orders.
const maxOrders = 1 << 16

// orders learns which message functions send after which. This distinguishes transactions
// of one user that are open at the same time.
type orders struct {
	pairs map[[2]int32]float64 // by the name received last and the name sent
	after map[int32]float64    // by the name received last
	alone map[alone]*lonely
}

// An alone identifies the messages with one name from one function.
type alone struct{ function, name int32 }

// lonely counts messages without a known identifier: those sent while the function had a
// request to answer, and those sent while it had none.
type lonely struct{ busy, idle float64 }

func (o *orders) init() {
	o.pairs, o.after, o.alone = map[[2]int32]float64{}, map[int32]float64{}, map[alone]*lonely{}
}

func (o *orders) learn(in, out int32) {
	key := [2]int32{in, out}
	if len(o.pairs) >= maxOrders {
		if _, known := o.pairs[key]; !known {
			return
		}
	}
	o.pairs[key]++
	o.after[in]++
}

// nothing records that a function sent no message after it received in.
func (o *orders) nothing(in int32) { o.after[in]++ }

// likely estimates the probability that a function that received in last sends out. It is
// never 0, because new orders may occur.
func (o *orders) likely(in, out int32) float64 {
	return (o.pairs[[2]int32{in, out}] + 0.1) / (o.after[in] + 1)
}

// provoked returns the confidence that the function sends such messages only while it has a
// request to answer. It also counts the current message.
func (o *orders) provoked(function, name int32, busy bool) float64 {
	l := o.alone[alone{function, name}]
	if l == nil {
		if len(o.alone) >= maxOrders {
			return 0
		}
		l = &lonely{}
		o.alone[alone{function, name}] = l
	}
	if !busy {
		l.idle++
		return 0
	}
	l.busy++
	// A function that once sent such a message while idle will do so again, also by chance
	// while it is busy. So each idle message counts eight times.
	return l.busy / (l.busy + 1 + 8*l.idle)
}
