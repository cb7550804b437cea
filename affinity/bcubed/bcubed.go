// Package bcubed compares a clustering with the true classes by the B-cubed measure: A.
// Bagga, B. Baldwin, "Entity-Based Cross-Document Coreferencing Using the Vector Space
// Model", COLING-ACL 1998, and E. Amigó et al., "A comparison of extrinsic clustering
// evaluation metrics based on formal constraints", Information Retrieval 12, 2009, section
// 3.4.
package bcubed

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

// Judge returns the scores. The score of a type is the mean over its items, but the
// precision and recall of an item count items of all types.
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
