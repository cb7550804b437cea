package bcubed

import (
	"math"
	"testing"
)

// items makes items from pairs of a class and a cluster. A dot means none.
func items(pairs ...string) []Item {
	var out []Item
	for _, p := range pairs {
		i := Item{Class: p[:1], Cluster: p[1:], Type: "type " + p[:1]}
		if i.Class == "." {
			i.Class = ""
		}
		if i.Cluster == "." {
			i.Cluster = ""
		}
		out = append(out, i)
	}
	return out
}

func TestScoresEqualThoseComputedByHand(t *testing.T) {
	for _, c := range []struct {
		name              string
		items             []Item
		precision, recall float64
	}{
		{"all right", items("a1", "a1", "b2", "b2", "b2"), 1, 1},
		// Class a has 3 items, b has 2. One cluster: a 3/5, b 2/5: (3*3/5 + 2*2/5) / 5.
		{"all together", items("a1", "a1", "a1", "b1", "b1"), 13.0 / 25, 1},
		// Each apart: a 1/3 three times, b 1/2 twice: (1 + 1) / 5.
		{"all apart", items("a1", "a2", "a3", "b4", "b5"), 1, 2.0 / 5},
		{"none found", items("a.", "a.", "a.", "b.", "b."), 1, 2.0 / 5},
		// The example of Bagga and Baldwin, section 4: classes of 5, 2 and 5. The response
		// joins the second and the third: precision (5*1 + 2*2/7 + 5*5/7) / 12 = 16/21.
		{"two classes joined", items("a1", "a1", "a1", "a1", "a1", "b2", "b2", "c2", "c2", "c2", "c2", "c2"), 16.0 / 21, 1},
		// The other response joins the two classes of 5: (2*1 + 10*5/10) / 12 = 7/12.
		{"the large ones joined", items("a1", "a1", "a1", "a1", "a1", "c1", "c1", "c1", "c1", "c1", "b2", "b2"), 7.0 / 12, 1},
		// a: two in cluster 1, where one b is, and one in cluster 2, where one b is.
		// Precision: a 2/3, 2/3, 1/2, b 1/3, 1/2. Recall: a 2/3, 2/3, 1/3, b 1/2, 1/2.
		{"mixed", items("a1", "a1", "a2", "b1", "b2"), 8.0 / 15, 8.0 / 15},
		// Two items of no class in the cluster of two a: a 1/2 twice, the others 1/4 each.
		{"strangers in a cluster", items("a1", "a1", ".1", ".1"), 3.0 / 8, 1},
		{"strangers apart", items("a1", "a1", "..", ".."), 1, 1},
	} {
		got := Judge(c.items)
		if math.Abs(got.Precision-c.precision) > 1e-12 || math.Abs(got.Recall-c.recall) > 1e-12 || got.Items != len(c.items) {
			t.Errorf("%s: %+v, want precision %v and recall %v", c.name, got.Score, c.precision, c.recall)
		}
	}
}

func TestTypesAreJudgedApart(t *testing.T) {
	got := Judge(items("a1", "a1", "a2", "b1", "b2"))
	if b := got.ByType["type b"]; b.Items != 2 || math.Abs(b.Precision-5.0/12) > 1e-12 || b.Recall != 0.5 {
		t.Errorf("type b: got %+v", b)
	}
}
