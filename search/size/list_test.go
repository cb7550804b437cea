package size_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"vitrine"
	"vitrine/search/size"
)

func TestCustomMeasuresEachOnceInOrder(t *testing.T) {
	a, b := sizing(t, "bn1s-sp2m"), sizing(t, "bn1s-sp1s")
	search := size.NewCustom([]vitrine.Sizing{a, b, a})
	var got []string
	var history []vitrine.Measured
	for step := search.Next(history); !step.Done; step = search.Next(history) {
		got = append(got, step.Sizing.String())
		history = append(history, vitrine.Measured{Sizing: step.Sizing})
	}
	if want := []string{"bn1s-sp2m", "bn1s-sp1s"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if plan := search.(size.Planner).Plan(); len(plan) != 2 || plan[0].String() != "bn1s-sp2m" {
		t.Errorf("plan %v", plan)
	}
}

// TestExhaustiveIsBruteForce compares the search with an enumeration of all
// combinations.
func TestExhaustiveIsBruteForce(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		space := randomSpace(random)
		search, err := size.NewExhaustive(space)
		want := bruteForce(space)
		if err != nil {
			if len(want) > 0 || !vitrine.IsBadInput(err) {
				t.Fatalf("seed %d: %v, want %d sizings", seed, err, len(want))
			}
			continue
		}
		var got []string
		vcpus := 0.0
		for _, s := range search.(size.Planner).Plan() {
			got = append(got, s.String())
			r := space.Resources(s)
			if !r.Within(space.Limit) || r.VCPUs < vcpus-1e-9 {
				t.Fatalf("seed %d: %s has %v after %g vCPUs", seed, s, r, vcpus)
			}
			vcpus = r.VCPUs
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d sizings, want %d", seed, len(got), len(want))
		}
	}
}

func randomSpace(random *rand.Rand) size.Space {
	space := size.Space{MaxCount: random.IntN(4), Counts: map[string]size.Count{}}
	for i := range 1 + random.IntN(3) {
		short := string(rune('a' + i))
		space.Components = append(space.Components, vitrine.Component{Name: "component " + short, Short: short, Scalable: true})
		if random.IntN(4) == 0 {
			low := 1 + random.IntN(2)
			space.Counts[short] = size.Count{Min: low, Max: low + random.IntN(2)}
		}
	}
	vcpus := 0.0
	for i := range 1 + random.IntN(3) {
		vcpus += 0.1 * float64(1+random.IntN(3))
		space.Flavors = append(space.Flavors, vitrine.Flavor{Name: string(rune('x' + i)), VCPUs: vcpus, Memory: int64(1+random.IntN(3)) * gib})
	}
	space.Limit.VCPUs = 0.1 * float64(1+random.IntN(25))
	if random.IntN(2) == 0 {
		space.Limit.Memory = int64(1+random.IntN(12)) * gib
	}
	return space
}

// bruteForce enumerates up to 25 instances of each component and flavor.
func bruteForce(space size.Space) []string {
	sizings := []vitrine.Sizing{nil}
	for _, c := range space.Components {
		low, high := 1, 25
		if space.MaxCount > 0 {
			high = space.MaxCount
		}
		if count, ok := space.Counts[c.Short]; ok {
			low, high = count.Min, count.Max
		}
		var longer []vitrine.Sizing
		for _, s := range sizings {
			for _, f := range space.Flavors {
				for n := low; n <= high; n++ {
					longer = append(longer, append(s.Clone(), vitrine.Part{Short: c.Short, Count: n, Initial: f.Name[0]}))
				}
			}
		}
		sizings = longer
	}
	var names []string
	for _, s := range sizings {
		if space.Resources(s).Within(space.Limit) {
			names = append(names, s.String())
		}
	}
	return names
}

func TestExhaustiveRefusals(t *testing.T) {
	wide := ims(vitrine.Resources{VCPUs: 1000})
	for want, space := range map[string]size.Space{
		"more than 100000 sizings":      wide,
		"nothing bounds the instances":  ims(vitrine.Resources{}),
		"no sizing is within the limit": ims(vitrine.Resources{VCPUs: 2}),
		"no component is scalable":      {Flavors: wide.Flavors},
		"no flavor":                     {Components: wide.Components},
		"sprout may have at least 3":    {Components: wide.Components, Flavors: wide.Flavors, Counts: map[string]size.Count{"sp": {Min: 3, Max: 2}}},
	} {
		_, err := size.NewExhaustive(space)
		if err == nil || !strings.Contains(err.Error(), want) || !vitrine.IsBadInput(err) {
			t.Errorf("got %v, want bad input with %q", err, want)
		}
	}
}

// TestExhaustiveOfManyComponents checks that the search does not enumerate
// combinations that cannot fit.
func TestExhaustiveOfManyComponents(t *testing.T) {
	space := ims(vitrine.Resources{VCPUs: 21})
	space.Components = nil
	for i := range 20 {
		short := fmt.Sprintf("c%c", 'a'+i)
		space.Components = append(space.Components, vitrine.Component{Name: short, Short: short})
	}
	search, err := size.NewExhaustive(space)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(search.(size.Planner).Plan()); n != 1+2*20 { // all small; one of them doubled, or medium
		t.Errorf("%d sizings, want 41", n)
	}
}
