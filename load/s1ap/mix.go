package s1ap

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// weights has the relative frequency of each procedure.
type weights [procedures]int

// defaultMix is the default mix of the scenario mix.
const defaultMix = "service-request=6,tracking-area-update=2,attach=1,detach=1"

// maxWeight is the largest weight of a procedure.
const maxWeight = 1000

// mixed has the procedures of a mix, by their names in the parameter.
var mixed = map[string]procedure{
	"attach": attachIdle, "detach": detach, "service-request": service, "tracking-area-update": update,
	"dedicated-bearer": dedicated, "x2-handover": handoverX2, "s1-handover": handoverS1,
}

// parseMix parses NAME=WEIGHT,NAME=WEIGHT and so on.
func parseMix(text string) (w weights, err error) {
	total := 0
	for item := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(item, "=")
		p, ok := mixed[name]
		if !ok {
			return w, fmt.Errorf("%q is not a procedure of a mix: want attach, detach, service-request, tracking-area-update, dedicated-bearer, x2-handover, s1-handover", name)
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > maxWeight || w[p] != 0 {
			return w, fmt.Errorf("%q: want each procedure once, as NAME=WEIGHT with a weight of at most %d", item, maxWeight)
		}
		w[p] = n
		total += n
	}
	if total == 0 {
		return w, errors.New("want a weight above 0")
	}
	return w, nil
}

// hands reports whether the mix includes handovers.
func (w *weights) hands() bool { return w[handoverX2] > 0 || w[handoverS1] > 0 }

// draw returns the procedure of a random number n below total.
func (w *weights) draw(n int) procedure {
	for _, p := range [...]procedure{service, update, attachIdle, detach, dedicated, handoverX2} {
		if n < w[p] {
			return p
		}
		n -= w[p]
	}
	return handoverS1
}

// total returns the sum of the weights.
func (w *weights) total() (n int) {
	for _, of := range w {
		n += of
	}
	return n
}
