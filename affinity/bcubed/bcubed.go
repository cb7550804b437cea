// Package bcubed judges a clustering against the true classes by the B-cubed measure:
// A. Bagga, B. Baldwin, "Entity-Based Cross-Document Coreferencing Using the Vector
// Space Model", COLING-ACL 1998, and E. Amigó et al., "A comparison of extrinsic
// clustering evaluation metrics based on formal constraints", Information Retrieval 12,
// 2009, section 3.4.
package bcubed

// An Item is a thing that was clustered.
type Item struct {
	Class   string // the true one; empty: one of its own
	Cluster string // the one found; empty: one of its own, as of an item that was not found
	Type    string // of the class, for Scores.ByType
}

// A Score is the mean over items of two shares. Precision: of the items of an item's
// cluster, those that are of its class. Recall: of the items of its class, those that
// are in its cluster. Both count the item itself.
type Score struct {
	Items             int
	Precision, Recall float64
}

// F returns the harmonic mean of precision and recall.
func (s Score) F() float64 {
	if s.Precision+s.Recall == 0 {
		return 0
	}
	return 2 * s.Precision * s.Recall / (s.Precision + s.Recall)
}

// Scores are the scores of all items, and of those of each type.
type Scores struct {
	Score
	ByType map[string]Score
}

// Judge returns the scores. Those of a type are means over its items alone; the shares
// of an item count the others of all types.
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

// Worst returns the type with the lowest of all precisions and recalls, the first by
// name of several.
func (s *Scores) Worst() (name string, of Score) {
	least := 2.0
	for n, t := range s.ByType {
		low := min(t.Precision, t.Recall)
		if low < least || low == least && n < name {
			name, of, least = n, t, low
		}
	}
	return name, of
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
