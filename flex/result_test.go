package flex

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/flex/config"
	"vitrine/redline"
)

// writeResult writes a result of redline for type registration, with changes, and returns the path.
func writeResult(t *testing.T, change func(*redline.Result)) string {
	t.Helper()
	r := redline.Result{
		Version: redline.ResultVersion, Type: "registration", Verdict: redline.Within, Rate: 30, Low: 28, High: 33,
		Objective: redline.ResultObjective{Success: 0.99, Latency: 50, Quantile: 0.99},
	}
	change(&r)
	path := filepath.Join(t.TempDir(), "registration-1.json")
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// registration returns a type that a result of writeResult fits.
func registration() (*config.Type, config.Flavor) {
	return &config.Type{Name: "registration", Objective: config.Objective{P99: 50 * time.Millisecond, Success: 0.99}}, config.Flavor{Size: "sp1s", Transactions: 1}
}

// TestResultOfRedlineIsACapacity checks the capacity that a result of redline stands for: the lower end
// of its interval, or its lower bound.
func TestResultOfRedlineIsACapacity(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*redline.Result)
		rate   float64
	}{
		"an interval":   {func(*redline.Result) {}, 28},
		"a lower bound": {func(r *redline.Result) { r.Verdict, r.Rate, r.Low, r.High = redline.AtLeast, 40, 40, 0 }, 40},
		"of this size":  {func(r *redline.Result) { r.Flavor = "sp1s" }, 28},
		"a stricter objective": {func(r *redline.Result) {
			r.Objective = redline.ResultObjective{Success: 0.999, Latency: 20, Quantile: 0.999}
		}, 28},
	} {
		kind, flavor := registration()
		if got, ok, err := ReadResult(writeResult(t, c.change), kind, flavor); !ok || err != nil || got.Rate != c.rate {
			t.Errorf("%s: got %+v, %t, %v, want %g/s", name, got, ok, err, c.rate)
		}
	}
	kind, flavor := registration()
	if _, ok, err := ReadResult(t.TempDir(), kind, flavor); ok || err != nil {
		t.Errorf("a folder is taken for a result: %t, %v", ok, err)
	}
}

// TestResultOfSomethingElseIsRefused checks that a result counts only if it shows that the type meets its
// objective.
func TestResultOfSomethingElseIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*redline.Result)
		want   string
	}{
		"aborted":          {func(r *redline.Result) { r.Verdict, r.Why, r.Rate, r.Low = redline.Aborted, "a fault", 0, 0 }, "without a capacity: aborted: a fault"},
		"another type":     {func(r *redline.Result) { r.Type = "session" }, "a result of type session"},
		"another size":     {func(r *redline.Result) { r.Flavor = "sp1l" }, "a result of size sp1l"},
		"another version":  {func(r *redline.Result) { r.Version = 999 }, "version 999"},
		"a lower success":  {func(r *redline.Result) { r.Objective.Success = 0.9 }, "below the objective of 0.99"},
		"a higher latency": {func(r *redline.Result) { r.Objective.Latency = 60 }, "looser than the objective of 50ms"},
		"a lower quantile": {func(r *redline.Result) { r.Objective.Quantile = 0.9 }, "looser than the objective of 50ms"},
	} {
		kind, flavor := registration()
		if _, ok, err := ReadResult(writeResult(t, c.change), kind, flavor); !ok || !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %t, error %v, want bad input with %q", name, ok, err, c.want)
		}
	}
	kind, flavor := registration()
	flavor.Transactions = 3
	if _, _, err := ReadResult(writeResult(t, func(*redline.Result) {}), kind, flavor); !vitrine.IsBadInput(err) {
		t.Errorf("with transactions_per_call: got error %v, want bad input", err)
	}
}
