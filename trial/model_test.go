package trial_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"vitrine"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/trial"
)

// TestModelCampaign checks that the winner is measured again and that this second result counts.
// The profile must distinguish measured from predicted sizes. A resumed run must have the same
// plan.
func TestModelCampaign(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "ceiling: 25")
	c.config.Deployment.Mode = spec.Mode{Name: spec.Model, Objective: spec.MostCapacity, ScaleOn: vitrine.CPU, Limit: spec.Limit{VCPUs: 0.6}}
	planned, err := trial.New(c.config)
	if err != nil {
		t.Fatal(err)
	}
	if plan := planned.Plan; !plan.Open || plan.MostSizings != 4 || plan.Names[0] != "fr1s" { // fr1s, fr2s, fr1m, and the winner again
		t.Fatalf("%+v", plan)
	}
	summary, err := c.measure(t.Context())
	if err != nil || summary.Optimal == nil {
		t.Fatalf("%+v, %v", summary, err)
	}
	again := slices.IndexFunc(summary.Sizings, func(z result.Sizing) bool { return z.Again && z.Name == summary.Optimal.Sizing })
	if again < 0 || summary.Best().Capacities[0] != summary.Sizings[again].Capacities[0] {
		t.Errorf("%+v, optimal %+v", summary.Sizings, summary.Optimal)
	}
	if !strings.Contains(summary.Optimal.Why, "measured once more") || !strings.Contains(summary.StoppedBecause, "no untried sizing") {
		t.Errorf("%s; stopped because %s", summary.Optimal.Why, summary.StoppedBecause)
	}
	last := summary.Sizings[len(summary.Sizings)-1]
	if step := summary.Path[len(summary.Path)-1]; step.Predicted == nil || step.Predicted.Low > last.Capacities[0].Rate || step.Predicted.High < last.Capacities[0].Rate {
		t.Errorf("%+v, measured %+v", step, last.Capacities)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "profile.json"))
	if err != nil {
		t.Fatal(err)
	}
	profile, err := vitrine.ParseProfile(text)
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, text)
	sources := map[string]string{}
	for _, z := range profile.Settings[0].Sizes {
		sources[z.Sizing] = z.Source
		if measured := z.Source == vitrine.SourceMeasured; measured != (z.Boot > 0) || measured != (len(z.Latency) > 0) {
			t.Errorf("%+v", z)
		}
	}
	if len(sources) != 3 || sources["fr1s"] != vitrine.SourceMeasured || profile.Function != "echo" || len(profile.Settings[0].Components) != 2 {
		t.Errorf("%v: %+v", sources, profile)
	}

	before := text
	trials := len(c.outcomes())
	resumed, err := c.measure(t.Context())
	if err != nil || len(c.outcomes()) != trials || !reflect.DeepEqual(resumed, summary) {
		t.Errorf("resumed: %d trials, were %d (%v):\n%+v, was\n%+v", len(c.outcomes()), trials, err, resumed, summary)
	}
	if text, err = os.ReadFile(filepath.Join(c.dir, "profile.json")); err != nil || string(text) != string(before) {
		t.Errorf("the resumed run's profile differs (%v):\n%s, was\n%s", err, text, before)
	}
}

// conforms checks the profile against its published schema.
func conforms(t *testing.T, profile []byte) {
	t.Helper()
	text, err := spec.Schema(spec.KindProfile, spec.Known{})
	if err != nil {
		t.Fatal(err)
	}
	published, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("profile.schema.json", published); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("profile.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(profile))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Error(err)
	}
}
