package flex

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"vitrine"
	"vitrine/flex/config"
	"vitrine/redline"
)

// ReadResult returns the capacity of a flavor from a result file of vitrine redline. ok is false if the
// file is something else. The error is a *vitrine.BadInput if the file has no capacity, if it is of
// another type or size, or if it does not show that the type's objective is met.
func ReadResult(path string, t *config.Type, f config.Flavor) (c Capacity, ok bool, err error) {
	r, ok := resultAt(path)
	if !ok {
		return Capacity{}, false, nil
	}
	var m Measured
	m.adopt(&r, 0)
	if found, want := misfit(&r, &m, t, f); found != "" {
		return Capacity{}, true, &vitrine.BadInput{File: path, Found: found, Want: want + ", or give rate"}
	}
	return Capacity{Rate: m.After, Cost: m.Cost}, true, nil
}

// resultAt reads a result of redline. ok is false if the file has none.
func resultAt(path string) (r redline.Result, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &r) != nil {
		return r, false
	}
	return r, r.Version != 0
}

// misfit returns why a result of redline is not the capacity of a flavor, and what is wanted instead.
// Both are empty if it is. m is made from the result.
func misfit(r *redline.Result, m *Measured, t *config.Type, f config.Flavor) (found, want string) {
	const again = "measure again"
	switch {
	case r.Version != redline.ResultVersion:
		return fmt.Sprintf("a result of redline of version %d", r.Version), "measure with this version of vitrine"
	case !m.Found() || m.After == 0:
		return strings.TrimSuffix(fmt.Sprintf("a result of redline without a capacity: %s: %s", r.Verdict, r.Why), ": "), again
	case r.Type != t.Name:
		return "a result of type " + r.Type, "want one of type " + t.Name
	case r.Flavor != "" && r.Flavor != f.Size:
		return "a result of size " + r.Flavor, "want one of size " + f.Size
	case f.Transactions != 1:
		return fmt.Sprintf("transactions_per_call %g", f.Transactions), "redline counts transactions already: leave it out"
	case r.Objective.Success < t.Objective.Success:
		return fmt.Sprintf("a result for a success ratio of %g, below the objective of %g", r.Objective.Success, t.Objective.Success), again
	case t.Objective.P99 > 0 && (r.Objective.Quantile < 0.99 || r.Objective.Latency > float64(t.Objective.P99)/float64(time.Millisecond)):
		return fmt.Sprintf("a result for a p%g of %g ms, looser than the objective of %s for p99", 100*r.Objective.Quantile, r.Objective.Latency, t.Objective.P99), again
	}
	return "", ""
}
