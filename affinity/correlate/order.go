package correlate

// maxOrders bounds the pairs and the lonely messages in orders. Twice as many moments are kept.
const maxOrders = 1 << 16

// orders learns which message functions send after which. This distinguishes transactions
// of one user that are open at the same time.
type orders struct {
	pairs map[pair]float64
	after map[moment]float64
	alone map[alone]*lonely
}

// A moment of a transaction is the name of the message that a function received last, and
// the name of the first message of the transaction; -1: any.
type moment struct{ last, first int32 }

func (m moment) anywhere() moment { return moment{m.last, -1} }

// A pair is a moment and the name of the message that a function sends then.
type pair struct {
	moment
	name int32
}

// An alone identifies the messages with one name from one function.
type alone struct{ function, name int32 }

// lonely counts messages without a known identifier: those sent while the function had a
// request to answer, and those sent while it had none.
type lonely struct{ busy, idle float64 }

func (o *orders) init() {
	o.pairs, o.after, o.alone = map[pair]float64{}, map[moment]float64{}, map[alone]*lonely{}
}

func (o *orders) learn(at moment, name int32) {
	for _, at := range [...]moment{at, at.anywhere()} {
		key := pair{at, name}
		if _, known := o.pairs[key]; known || len(o.pairs) < maxOrders {
			o.pairs[key]++
			o.after[at]++
		}
	}
}

// nothing records that a function sent no message at a moment.
func (o *orders) nothing(at moment) {
	for _, at := range [...]moment{at, at.anywhere()} {
		if _, known := o.after[at]; known || len(o.after) < maxOrders {
			o.after[at]++
		}
	}
}

// likely estimates the probability that a function sends a message at a moment. It is never
// 0, because new orders may occur.
func (o *orders) likely(at moment, name int32) float64 {
	return (o.pairs[pair{at, name}] + 0.1) / (o.after[at] + 1)
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
