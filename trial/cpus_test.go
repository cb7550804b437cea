package trial

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"vitrine"
)

func TestAssignCPUs(t *testing.T) {
	small := func(name string, vcpus float64) demand { return demand{instance: name, vcpus: vcpus} }
	tests := []struct {
		name    string
		cpus    []int
		pinned  bool
		demands []demand
		want    map[string][]int // nil: refused
	}{
		{"instances without pinning may use all CPUs", []int{1, 2}, false,
			[]demand{small("a", 0.5), small("b", 1.5)},
			map[string][]int{"a": {1, 2}, "b": {1, 2}}},
		{"pinned instances do not share a CPU beyond its capacity", []int{1, 2}, true,
			[]demand{small("a", 0.6), small("b", 0.6), small("c", 0.4)},
			map[string][]int{"a": {1}, "b": {2}, "c": {1}}},
		{"whole CPUs first", []int{1, 2, 3}, true,
			[]demand{small("a", 0.5), small("b", 2)},
			map[string][]int{"a": {3}, "b": {1, 2}}},
		{"an exclusive flavor keeps other instances off its CPU", []int{1, 2}, false,
			[]demand{small("a", 0.5), {instance: "b", vcpus: 0.5, exclusive: true}},
			map[string][]int{"a": {2}, "b": {1}}},
		{"a decimal sum equal to the limit fits", []int{1}, true,
			[]demand{small("a", 0.1), small("b", 0.2), small("c", 0.7)},
			map[string][]int{"a": {1}, "b": {1}, "c": {1}}},
		{"nothing left for the others", []int{1}, false,
			[]demand{{instance: "a", vcpus: 0.5, exclusive: true}, small("b", 0.1)}, nil},
		{"an exclusive flavor counts as whole CPUs", []int{1, 2}, false,
			[]demand{{instance: "a", vcpus: 0.1, exclusive: true}, small("b", 0.8), small("c", 0.7)}, nil},
		{"the sum is too large", []int{1}, false, []demand{small("a", 0.6), small("b", 0.5)}, nil},
		{"the sum fits, but not with pinning", []int{1, 2}, true,
			[]demand{small("a", 0.7), small("b", 0.7), small("c", 0.6)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := assign(tt.cpus, tt.pinned, tt.demands)
			if tt.want == nil {
				if !vitrine.IsUnsupported(err) {
					t.Fatalf("got %v, %v; want an Unsupported", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
