package table

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"vitrine"
)

var types = []string{"registration", "session"}

func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 5060)
}

func registrations(n int, weight func(i int) float64) []Instance {
	all := make([]Instance, n)
	for i := range all {
		all[i] = Instance{Name: fmt.Sprintf("reg-%d", i+1), Type: "registration", Address: address(i), Weight: weight(i)}
	}
	return all
}

func same(int) float64 { return 100 }

func build(t testing.TB, instances []Instance, rooms ...Room) *Table {
	t.Helper()
	table, err := New(1, types, instances, rooms...)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// keys returns n hashes made by Key.
func keys(n int) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = Key(fmt.Appendf(nil, "%d@client.example", i))
	}
	return all
}

func names(t *Table, ks []uint64, region Region, h *Health) []string {
	all := make([]string, len(ks))
	for i, k := range ks {
		if at, ok := t.Pick(0, k, region, h); ok {
			all[i] = t.Instance(at).Name
		}
	}
	return all
}

// TestEven checks that the slots of every instance differ from its weight's share by less than one.
func TestEven(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, weight := range map[string]func(int) float64{
		"equal":     same,
		"two kinds": func(i int) float64 { return float64(100 + 300*(i%2)) },
		"random":    func(int) float64 { return 1 + 99*random.Float64() },
		"one large": func(i int) float64 { return map[bool]float64{true: 5000, false: 10}[i == 0] },
		"one tiny":  func(i int) float64 { return map[bool]float64{true: 1e-9, false: 1}[i == 0] },
	} {
		for _, n := range []int{1, 2, 4, 97, 1000} {
			instances := registrations(n, weight)
			table := build(t, instances)
			counts, total := make(map[string]int, n), 0.0
			for _, local := range table.parts[0].all.slots {
				counts[table.targets[local].Name]++
			}
			for _, in := range instances {
				total += in.Weight
			}
			for _, in := range instances {
				if want := Slots * in.Weight / total; (math.Abs(float64(counts[in.Name])-want) >= 1 && want >= 1) || counts[in.Name] == 0 {
					t.Errorf("%s, %d instances: %s has %d slots, want its share %.2f", name, n, in.Name, counts[in.Name], want)
				}
			}
		}
	}
}

// moved counts the keys that change their instance (all), and those of them that neither leave nor
// reach one of the changed instances (others).
func moved(before, after []string, changed ...string) (all, others int) {
	for i := range before {
		if before[i] == after[i] {
			continue
		}
		all++
		if !contains(changed, before[i]) && !contains(changed, after[i]) {
			others++
		}
	}
	return all, others
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// TestDisruption checks that adding an instance or changing its weight moves that instance's share
// of keys, and at most one key in 20 between other instances.
func TestDisruption(t *testing.T) {
	ks := keys(20000)
	for _, n := range []int{4, 10, 100, 1000} {
		instances := registrations(n+1, same)
		less, more := build(t, instances[:n]), build(t, instances)
		last := instances[n].Name
		before, after := names(less, ks, 0, nil), names(more, ks, 0, nil)
		all, others := moved(before, after, last)
		share := float64(len(ks)) / float64(n+1)
		if float64(all-others) > share*1.3+20 || others > len(ks)/20 {
			t.Errorf("adding an instance to %d moves %d of %d keys, %d of them between others; its share is %.0f", n, all, len(ks), others, share)
		}
		t.Logf("%d+1 instances: %.2f%% of keys move, %.2f%% between others", n, 100*float64(all)/float64(len(ks)), 100*float64(others)/float64(len(ks)))

		instances[0].Weight *= 1.1
		heavier := names(build(t, instances), ks, 0, nil)
		all, others = moved(after, heavier, instances[0].Name)
		if others > len(ks)/20 || all == 0 && n < 100 {
			t.Errorf("10%% more weight for one of %d instances moves %d keys, %d of them between others", n+1, all, others)
		}
	}
}

// TestPermutation checks that a table does not depend on the order of its instances.
func TestPermutation(t *testing.T) {
	instances := registrations(50, func(i int) float64 { return float64(i + 1) })
	ks := keys(2000)
	want := names(build(t, instances), ks, 0, nil)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(instances), func(i, j int) { instances[i], instances[j] = instances[j], instances[i] })
	if all, _ := moved(want, names(build(t, instances), ks, 0, nil)); all != 0 {
		t.Errorf("%d keys changed their instance, want 0", all)
	}
}

// TestKey checks the hash, which is part of the contract between directors.
func TestKey(t *testing.T) {
	for text, want := range map[string]uint64{"": 0xef46db3751d8e999, "abc": 0x44bc2cf5ad770999, "a84b4c76e66710@pc33.atlanta.com": Key([]byte("a84b4c76e66710@pc33.atlanta.com"))} {
		if got := Key([]byte(text)); got != want {
			t.Errorf("Key(%q) is %#x, want XXH64 %#x", text, got, want)
		}
	}
	if RegionOf("") != 0 || RegionOf("eu") == 0 || RegionOf("eu") == RegionOf("us") {
		t.Error("regions have equal numbers, or the empty region has a number")
	}
}

// TestFailedShare checks that the keys of unhealthy instances spread over the others by weight, and
// that no other key moves.
func TestFailedShare(t *testing.T) {
	instances := registrations(8, func(i int) float64 { return float64(100 + 100*(i%2)) })
	table := build(t, instances)
	ks := keys(200000)
	before := names(table, ks, 0, nil)
	for _, away := range [][]string{{"reg-1"}, {"reg-2", "reg-5"}, {"reg-1", "reg-2", "reg-3", "reg-4", "reg-5", "reg-6"}} {
		h := table.Health(func(at *Target) Condition {
			if contains(away, at.Name) {
				return Away
			}
			return Up
		})
		after := names(table, ks, 0, h)
		if _, others := moved(before, after, away...); others != 0 {
			t.Errorf("%v unhealthy: %d keys of other instances moved", away, others)
		}
		got, n, weights := map[string]int{}, 0, 0.0
		for i := range ks {
			if contains(away, before[i]) {
				got[after[i]]++
				n++
			}
		}
		for _, in := range instances {
			if !contains(away, in.Name) {
				weights += in.Weight
			}
		}
		for _, in := range instances {
			want := float64(n) * in.Weight / weights
			if contains(away, in.Name) {
				want = 0
			}
			if math.Abs(float64(got[in.Name])-want) > 5*math.Sqrt(want)+0.01*want {
				t.Errorf("%v unhealthy: %s gets %d of their %d keys, want its share %.0f", away, in.Name, got[in.Name], n, want)
			}
		}
	}
}

// TestLastOne checks that the only healthy instance is found, and that no instance is found if none
// is healthy.
func TestLastOne(t *testing.T) {
	table := build(t, registrations(1000, same))
	only := table.Health(func(at *Target) Condition {
		if at.Name == "reg-500" {
			return Up
		}
		return Away
	})
	none := table.Health(func(*Target) Condition { return Away })
	for _, k := range keys(1000) {
		if i, ok := table.Pick(0, k, 0, only); !ok || table.Instance(i).Name != "reg-500" {
			t.Fatalf("Pick did not find the one healthy instance: %d, %v", i, ok)
		}
		if i, ok := table.Pick(0, k, 0, none); ok {
			t.Fatalf("Pick returned the unhealthy %s", table.Instance(i).Name)
		}
		if _, ok := table.Pick(1, k, 0, nil); ok {
			t.Fatal("Pick found an instance of a type without instances")
		}
		if _, ok := table.Pick(7, k, 0, nil); ok {
			t.Fatal("Pick found an instance of an unknown type")
		}
	}
}

// TestStates checks that only active instances get new keys.
func TestStates(t *testing.T) {
	instances := registrations(4, same)
	for i, s := range []vitrine.State{vitrine.Active, vitrine.Starting, vitrine.Draining, vitrine.Down} {
		instances[i].State = s
	}
	for _, name := range names(build(t, instances), keys(1000), 0, nil) {
		if name != "reg-1" {
			t.Fatalf("a new key goes to %s, want reg-1", name)
		}
	}
}

// TestFull checks that a full instance gets no keys while another instance has room.
func TestFull(t *testing.T) {
	table := build(t, registrations(3, same))
	one := table.Health(func(at *Target) Condition {
		if at.Name == "reg-1" {
			return Full
		}
		return Up
	})
	all := table.Health(func(at *Target) Condition {
		if at.Name == "reg-1" {
			return Away
		}
		return Full
	})
	for i, k := range keys(1000) {
		if at, ok := table.Pick(0, k, 0, one); !ok || table.Instance(at).Name == "reg-1" {
			t.Fatalf("key %d goes to the full instance, or to none", i)
		}
		if at, ok := table.Pick(0, k, 0, all); !ok || table.Instance(at).Name == "reg-1" {
			t.Fatalf("with all instances full, key %d goes to the unhealthy instance, or to none", i)
		}
	}
}

// TestRegions checks that clients stay in their own region while it has room and a healthy
// instance.
func TestRegions(t *testing.T) {
	instances := registrations(9, same)
	for i := range instances {
		instances[i].Region = []string{"eu", "us", ""}[i%3]
	}
	region := func(name string) string {
		for _, in := range instances {
			if in.Name == name {
				return in.Region
			}
		}
		return "nowhere"
	}
	ks := keys(30000)
	count := func(table *Table, from string, h *Health) map[string]int {
		got := map[string]int{}
		for _, name := range names(table, ks, RegionOf(from), h) {
			got[region(name)]++
		}
		return got
	}
	table := build(t, instances)
	if got := count(table, "eu", nil); got["eu"] != len(ks) {
		t.Errorf("clients of region eu go to %v, want eu", got)
	}
	for _, from := range []string{"", "asia"} {
		if got := count(table, from, nil); got["eu"] < 9000 || got["us"] < 9000 || got[""] < 9000 {
			t.Errorf("clients of region %q go to %v, want all regions", from, got)
		}
	}
	away := table.Health(func(at *Target) Condition {
		if at.Region == "eu" {
			return Away
		}
		return Up
	})
	if got := count(table, "eu", away); got["eu"] != 0 || got["us"] < 14000 || got[""] < 14000 {
		t.Errorf("clients of region eu, which is unhealthy, go to %v", got)
	}
	room := build(t, instances, Room{"registration", "eu", 0.7})
	// 70% of the keys stay. A third of the others comes back by the table of all regions.
	if got := count(room, "eu", nil)["eu"]; math.Abs(float64(got)-0.8*float64(len(ks))) > 500 {
		t.Errorf("%d of %d keys stay in a region with room for 70%%, want about 80%%", got, len(ks))
	}
}

func TestMistakes(t *testing.T) {
	good := registrations(2, same)
	with := func(change func([]Instance)) []Instance {
		all := append([]Instance(nil), good...)
		change(all)
		return all
	}
	for want, all := range map[string][]Instance{
		"reg-1 is there twice":         with(func(a []Instance) { a[1].Name = "reg-1" }),
		"same address":                 with(func(a []Instance) { a[1].Address = a[0].Address }),
		"same id 9":                    with(func(a []Instance) { a[0].ID, a[1].ID = 9, 9 }),
		`no type "x"`:                  with(func(a []Instance) { a[0].Type = "x" }),
		"weight 0":                     with(func(a []Instance) { a[0].Weight = 0 }),
		"weight -1":                    with(func(a []Instance) { a[0].Weight = -1 }),
		"weight NaN":                   with(func(a []Instance) { a[0].Weight = math.NaN() }),
		"weight +Inf":                  with(func(a []Instance) { a[0].Weight = math.Inf(1) }),
		"has no name":                  with(func(a []Instance) { a[0].Name = "" }),
		"must be an IP address":        with(func(a []Instance) { a[0].Address = netip.AddrPort{} }),
		"state":                        with(func(a []Instance) { a[0].State = 9 }),
		"at most 4096":                 registrations(MaxInstances+1, same),
		"must be from 0 to 1":          nil,
		"type registration is there 2": nil,
	} {
		var err error
		switch want {
		case "must be from 0 to 1":
			good[0].Region = "eu"
			_, err = New(1, types, good, Room{"registration", "eu", 1.5})
			good[0].Region = ""
		case "type registration is there 2":
			_, err = New(1, []string{"registration", "registration"}, nil)
			want = "registration is there twice"
		case "state":
			want = "no state"
			_, err = New(1, types, all)
		default:
			_, err = New(1, types, all)
			if checked := Check(types, all); checked == nil {
				t.Errorf("%s: Check found no fault", want)
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	empty := build(t, nil)
	if _, ok := empty.Pick(0, 1, 0, nil); ok || empty.Len() != 0 || empty.ByName("x") != nil || empty.ByID(0, 1) != nil {
		t.Error("an empty table has an instance")
	}
}

// TestIDs checks that an instance's ID depends on its name, is unique, and finds the
// instance.
func TestIDs(t *testing.T) {
	instances := registrations(1000, same)
	table := build(t, instances)
	seen := map[uint16]bool{}
	for i := range int32(table.Len()) {
		at := table.Target(i)
		if at.ID == 0 || seen[at.ID] || table.ByID(0, at.ID) != at || table.ByName(at.Name) != at {
			t.Fatalf("%s has the invalid or repeated ID %d", at.Name, at.ID)
		}
		seen[at.ID] = true
	}
	if table.ByID(1, table.Target(0).ID) != nil || table.ByID(9, 1) != nil {
		t.Error("ByID found an instance of another type")
	}
	few := build(t, instances[:20])
	for i := range int32(few.Len()) {
		if at := few.Target(i); table.ByName(at.Name).ID != at.ID {
			t.Logf("%s: %d among 20, %d among 1000", at.Name, at.ID, table.ByName(at.Name).ID)
		}
	}
	small := append([]Instance(nil), instances[:127]...)
	space := func(ty string) (string, uint16) { return ty, 127 }
	if err := Identify(small, space); err != nil {
		t.Fatal(err)
	}
	for _, in := range small {
		if in.ID < 1 || in.ID > 127 {
			t.Errorf("%s has ID %d, want 1 to 127", in.Name, in.ID)
		}
	}
	if err := Identify(append([]Instance(nil), instances[:128]...), space); err == nil {
		t.Error("Identify gave 128 instances IDs from a space of 127")
	}
}

// TestChoices checks that Choices explains what Pick does.
func TestChoices(t *testing.T) {
	instances := registrations(6, same)
	for i := range 3 {
		instances[i].Region = "eu"
	}
	table := build(t, instances, Room{"registration", "eu", 0.5})
	h := table.Health(func(at *Target) Condition {
		if at.Name == "reg-1" || at.Name == "reg-4" {
			return Away
		}
		return Up
	})
	for _, region := range []Region{0, RegionOf("eu"), RegionOf("us")} {
		for _, k := range keys(2000) {
			i, _ := table.Pick(0, k, region, h)
			all := table.Choices(0, k, region, h)
			if len(all) == 0 || !all[len(all)-1].Taken || all[len(all)-1].Index != i {
				t.Fatalf("picked instance %d, explained %+v", i, all)
			}
		}
	}
}

func BenchmarkNew1000(b *testing.B) {
	instances := registrations(1000, func(i int) float64 { return float64(50 + i%100) })
	for b.Loop() {
		if _, err := New(1, types, instances); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck1000(b *testing.B) {
	instances := registrations(1000, same)
	for b.Loop() {
		if err := Check(types, instances); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	table := build(b, registrations(1000, same))
	h := table.Health(nil)
	ks := keys(1 << 12)
	for i := 0; b.Loop(); i++ {
		table.Pick(0, ks[i&(1<<12-1)], 0, h)
	}
}
