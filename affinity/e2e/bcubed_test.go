package e2e

import (
	"math"
	"testing"
)

// An Item is a clustered thing.
type Item struct {
	Class   string // the true class; empty: a class of its own
	Cluster string // the cluster found; empty: a cluster of its own, as for an item that was not found
	Type    string // of the class, for Scores.ByType
}

// A Score has the mean precision and recall over items. The precision of an item is the
// share of its cluster that has its class. The recall of an item is the share of its class
// that is in its cluster. Both include the item itself.
type Score struct {
	Items             int
	Precision, Recall float64
}

// Scores are the scores of all items and of the items of each type.
type Scores struct {
	Score
	ByType map[string]Score
}

// Judge compares a clustering with the true classes by the B-cubed measure: A. Bagga, B.
// Baldwin, "Entity-Based Cross-Document Coreferencing Using the Vector Space Model",
// COLING-ACL 1998, and E. Amigó et al., "A comparison of extrinsic clustering evaluation
// metrics based on formal constraints", Information Retrieval 12, 2009, section 3.4. The
// score of a type is the mean over its items, but the precision and recall of an item count
// items of all types.
func Judge(items []Item) Scores {
	type cell struct{ class, cluster string }
	classes, clusters, both := map[string]int{}, map[string]int{}, map[cell]int{}
	for _, i := range items {
		classes[i.Class]++
		clusters[i.Cluster]++
		both[cell{i.Class, i.Cluster}]++
	}
	size := func(of map[string]int, name string) float64 {
		if name == "" {
			return 1
		}
		return float64(of[name])
	}
	out := Scores{ByType: map[string]Score{}}
	for _, i := range items {
		shared := 1.0
		if i.Class != "" && i.Cluster != "" {
			shared = float64(both[cell{i.Class, i.Cluster}])
		}
		precision, recall := shared/size(clusters, i.Cluster), shared/size(classes, i.Class)
		out.Score = out.add(precision, recall)
		out.ByType[i.Type] = out.ByType[i.Type].add(precision, recall)
	}
	out.Score = out.mean()
	for name, s := range out.ByType {
		out.ByType[name] = s.mean()
	}
	return out
}

func (s Score) add(precision, recall float64) Score {
	return Score{s.Items + 1, s.Precision + precision, s.Recall + recall}
}

func (s Score) mean() Score {
	if s.Items == 0 {
		return s
	}
	return Score{s.Items, s.Precision / float64(s.Items), s.Recall / float64(s.Items)}
}

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
