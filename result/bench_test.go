package result_test

import (
	"testing"

	"vitrine/result"
)

func BenchmarkAppend(b *testing.B) {
	r, err := result.Create(b.TempDir(), manifest())
	if err != nil {
		b.Fatal(err)
	}
	seq := 0
	for b.Loop() {
		seq++
		if err := r.Append(outcome(seq)); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}
