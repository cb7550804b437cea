package load

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vitrine"
)

func TestCommandRoundTrip(t *testing.T) {
	want := Trial{
		Rate: 12.5, Duration: 3, Warmup: 0.25, Targets: []string{"127.0.0.1:5060", "[::1]:5060"},
		Scratch: "/tmp/a b", Seed: math.MaxUint64,
		Params: map[string]string{"scenario": "reg-dereg", "user_format": "a=b,%d"},
	}
	program := []string{"vitrine", "generate", "sip"}
	c := Command(program, want)
	if !slices.Equal(c.Args[:3], program) {
		t.Errorf("args begin %q", c.Args[:3])
	}
	byArgs, err := ReadTrial(c.Args[3:], nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, byArgs); diff != "" {
		t.Errorf("through arguments: %s", diff)
	}
	byEnv, err := ReadTrial(nil, append(c.Env, "HOME=/root", "VITRINE_OTHER=1"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, byEnv); diff != "" {
		t.Errorf("through the environment: %s", diff)
	}
	both, err := ReadTrial([]string{"--rate=7", "--param", "user_format=x"}, c.Env)
	if err != nil {
		t.Fatal(err)
	}
	if both.Rate != 7 || both.Params["user_format"] != "x" || both.Params["scenario"] != "reg-dereg" {
		t.Errorf("arguments over environment: %+v", both)
	}
	if got := envName("call-time.2"); got != "CALL_TIME_2" {
		t.Errorf("envName = %q", got)
	}
}

func TestReadTrialRefuses(t *testing.T) {
	base := []string{"--rate", "10", "--duration", "3", "--targets", "127.0.0.1:5060"}
	for _, c := range []struct{ args, want string }{
		{"--rate 0", "--rate"}, {"--rate -1", "--rate"}, {"--rate NaN", "--rate"}, {"--rate x", "--rate x"}, {"--rate Inf", "--rate"},
		{"--rate 1e9", "calls in one trial"},
		{"--duration 0", "--duration"}, {"--duration 1e9", "--duration"}, {"--duration NaN", "--duration"},
		{"--warmup -1", "--warmup"}, {"--seed -1", "--seed -1"}, {"--seed 1.5", "--seed"},
		{"--targets 127.0.0.1", "address:port"}, {"--targets :5060", "address:port"}, {"--targets a:0", "address:port"},
		{"--targets a:99999", "address:port"}, {"--param x", "name=value"}, {"--param =x", "name=value"},
		{"--speed 3", "--speed"}, {"extra", "extra"}, {"--rate", "a value must follow"},
	} {
		_, err := ReadTrial(append(slices.Clone(base), strings.Fields(c.args)...), nil)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.args, err, c.want)
		}
	}
	if _, err := ReadTrial(nil, nil); !vitrine.IsBadInput(err) {
		t.Errorf("nothing given: %v", err)
	}
}

func TestPace(t *testing.T) {
	for _, c := range []struct {
		rate             float64
		warmup, duration float64
		steady, first    int64
		end              int64
	}{
		{10, 0, 0.3, 0, 0, 3}, {10, 1, 3, -10, -7, 30}, {0.5, 0, 3, 0, 0, 2}, {0.1, 5, 3, 0, 0, 1},
		{333.3, 0.5, 10, -166, -124, 3333}, {3, 0, 1, 0, 0, 3},
	} {
		trial := Trial{Rate: c.rate, Warmup: c.warmup, Duration: c.duration}
		for pace, want := range map[Pace]int64{trial.Steady(): c.steady, trial.Pace(): c.first} {
			first, end := pace.Calls(c.duration)
			if first != want || end != c.end {
				t.Errorf("rate %v: calls %d to %d, want %d to %d", c.rate, first, end, want, c.end)
			}
			if at := pace.At(end - 1); at >= time.Duration(c.duration*1e9) {
				t.Errorf("rate %v: the last call is due at %v, after the window", c.rate, at)
			}
			if at := pace.At(first); at < -time.Duration(c.warmup*1e9) {
				t.Errorf("rate %v: the first call is due at %v, before the warm-up", c.rate, at)
			}
		}
	}
	if got := (Trial{Rate: 3}).Pace().At(259_199); got != 86400*time.Second-333333333*time.Nanosecond {
		t.Errorf("late in a day: %v", got)
	}
}

// TestWarmupRises: over its first half a warm-up's rate grows evenly to the
// window's, and stays there.
func TestWarmupRises(t *testing.T) {
	trial := Trial{Rate: 1000, Warmup: 4, Duration: 1}
	pace := trial.Pace()
	var calls [4]int // in each second of the warm-up
	first, _ := pace.Calls(trial.Duration)
	last := time.Duration(-1 << 62)
	for n := first; n < 0; n++ {
		at := pace.At(n)
		if at < last {
			t.Fatalf("call %d is due at %v, before the one before it at %v", n, at, last)
		}
		last = at
		calls[int((at+4*time.Second)/time.Second)]++
	}
	for i, want := range []int{250, 750, 1000, 1000} {
		if diff := calls[i] - want; diff < -2 || diff > 2 {
			t.Errorf("second %d of the warm-up has %d calls, want %d", i+1, calls[i], want)
		}
	}
}
