package papers

import (
	"strings"
	"testing"

	"vitrine"
	"vitrine/result"
	"vitrine/spec"
)

// Every exhibit's specs are valid, and what the paper states names sizes that
// they measure.
func TestExhibitsAreValid(t *testing.T) {
	exhibits, err := List()
	if err != nil || len(exhibits) == 0 {
		t.Fatalf("%d exhibits: %v", len(exhibits), err)
	}
	for _, e := range exhibits {
		if e.Measured() {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			deployment, workload, err := e.Unpack(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			d, err := spec.LoadDeployment(deployment, spec.Known{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := spec.LoadWorkload(workload, spec.Known{Generators: map[string]any{"sip": map[string]any{}}}); err != nil {
				t.Fatal(err)
			}
			for _, o := range e.Stated {
				for _, p := range []Point{o.Less, o.More} {
					s, err := vitrine.ParseSizing(p.Sizing)
					if err != nil {
						t.Fatal(err)
					}
					if err := d.CheckSizing(s); err != nil {
						t.Error(err)
					}
					if d.Mode.Name == spec.Custom && !strings.Contains(strings.Join(d.Mode.Sizes, " "), p.Sizing) {
						t.Errorf("%q speaks of %s, which is not measured", o.Claim, p.Sizing)
					}
				}
			}
		})
	}
}

func TestJudge(t *testing.T) {
	sizing := func(name string, rate, low, high float64, censored string) result.Sizing {
		return result.Sizing{Name: name, Capacities: []vitrine.Capacity{
			{Threshold: 0.9, Rate: rate, Low: low, High: high, Censored: censored},
			{Threshold: 0.8, Rate: 2 * rate, Low: 2 * low, High: 2 * high, Censored: censored},
		}}
	}
	again := sizing("a1s", 100, 90, 110, vitrine.CensoredNone)
	again.Again = true
	s := result.Summary{Sizings: []result.Sizing{
		sizing("a1s", 300, 290, 310, vitrine.CensoredNone), again,
		sizing("a3s", 0, 0, 0, vitrine.CensoredGenerator), // no valid trial
		sizing("a3m", 150, 150, 150, vitrine.CensoredGenerator),
		sizing("a1m", 200, 180, 220, vitrine.CensoredNone),
		sizing("a2s", 105, 95, 115, vitrine.CensoredNone),
		sizing("a1l", 400, 400, 400, vitrine.CensoredAbove),
		sizing("a4s", 10, 10, 10, vitrine.CensoredBelow),
	}}
	for _, tt := range []struct{ less, more, want string }{
		{"a1s", "a1m", Holds},
		{"a1m", "a1s", Contrary},
		{"a1s", "a2s", Tied},
		{"a1m", "a1l", Holds},
		{"a1l", "a1m", Contrary}, // above has no upper bound, but a lower one
		{"a1m", "a4s", Contrary},
		{"a4s", "a1s", Holds}, // below: at most its lowest rate
		{"a1s", "a9s", Unmeasured},
		{"a1s", "a3s", Unmeasured},
		{"a3s", "a1s", Unmeasured},
		{"a1s", "a3m", Holds}, // more than the generator offered
	} {
		e := Exhibit{Stated: []Ordering{{Less: Point{Sizing: tt.less}, More: Point{Sizing: tt.more}}}}
		if got := e.Judge(s)[0]; got.Result != tt.want {
			t.Errorf("%s below %s: %s (%s), want %s", tt.less, tt.more, got.Result, got.Detail, tt.want)
		}
	}
	second := Ordering{Less: Point{Sizing: "a1s"}, More: Point{Sizing: "a1m"}, Threshold: 0.8}
	if v := second.judge(s); v.Ratio == nil || *v.Ratio != 2 || !strings.Contains(v.Detail, "400") {
		t.Errorf("at the second threshold: %+v", v)
	}
}
