package load

import (
	"math"
	"slices"
	"strings"
	"testing"

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
		t.Errorf("got arguments %q at the start", c.Args[:3])
	}
	byArgs, err := ReadTrial(c.Args[3:], nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, byArgs); diff != "" {
		t.Errorf("trial from arguments: %s", diff)
	}
	byEnv, err := ReadTrial(nil, append(c.Env, "HOME=/root", "VITRINE_OTHER=1"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, byEnv); diff != "" {
		t.Errorf("trial from the environment: %s", diff)
	}
	both, err := ReadTrial([]string{"--rate=7", "--param", "user_format=x"}, c.Env)
	if err != nil {
		t.Fatal(err)
	}
	if both.Rate != 7 || both.Params["user_format"] != "x" || both.Params["scenario"] != "reg-dereg" {
		t.Errorf("arguments must override the environment: %+v", both)
	}
	if got := envName("call-time.2"); got != "CALL_TIME_2" {
		t.Errorf("envName: got %q, want CALL_TIME_2", got)
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
			t.Errorf("%s: got error %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := ReadTrial(nil, nil); !vitrine.IsBadInput(err) {
		t.Errorf("without arguments and environment: got %v", err)
	}
}
