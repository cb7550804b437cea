package correlate

// maxOrders bounds the pairs and the lonely messages in orders. Twice as many moments are kept.
const maxOrders = 1 << 16

// orders learns which message functions send after which. This distinguishes transactions
// of one user that are open at the same time.
type orders struct {
	pairs map[pair]float64
	times map[moment]float64 // how often a function reached the moment
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
	o.pairs, o.times, o.alone = map[pair]float64{}, map[moment]float64{}, map[alone]*lonely{}
}

// reach records that a function has reached a moment.
func (o *orders) reach(at moment) {
	for _, at := range [...]moment{at, at.anywhere()} {
		if _, known := o.times[at]; known || len(o.times) < 2*maxOrders {
			o.times[at]++
		}
	}
}

// learn records that a function sent a message at a moment that it has reached.
func (o *orders) learn(at moment, name int32) {
	for _, at := range [...]moment{at, at.anywhere()} {
		key := pair{at, name}
		if _, known := o.pairs[key]; known || len(o.pairs) < maxOrders {
			o.pairs[key]++
		}
	}
}

// likely estimates how many messages with a name a function sends at a moment: 0 to 1, or
// more if it sends several. It is never 0, because new orders may occur. Each time that the
// function reached the moment counts, also when it may still send something. Otherwise one
// wrong decision would make the next ones wrong: at first, no transaction has ended.
func (o *orders) likely(at moment, name int32) float64 {
	return (o.pairs[pair{at, name}] + 0.1) / (o.times[at] + 1)
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
