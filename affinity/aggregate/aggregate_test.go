package aggregate

import (
	"fmt"
	"strings"
	"testing"

	"vitrine/affinity/flow"
)

func shipped(t *testing.T, group string) []Type {
	t.Helper()
	flows, err := flow.Find(group)
	if err != nil {
		t.Fatal(err)
	}
	return Types(flows)
}

func decide(t *testing.T, types []Type, limits Limits) map[string]Outcome {
	t.Helper()
	outcomes := map[string]Outcome{}
	for _, x := range types {
		o, err := Decide(x, limits)
		if err != nil {
			t.Fatal(err)
		}
		outcomes[x.Name] = o
	}
	return outcomes
}

func TestProbe(t *testing.T) {
	for _, g := range flow.Groups() {
		for _, x := range shipped(t, g) {
			o, _ := Decide(x, Limits{})
			fmt.Println(g, x.Name, strings.Join(o.Members, " "), "|", o.Outside, o.Path, o.Messages)
		}
	}
}
