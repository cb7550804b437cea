package vitrine_test

import (
	"fmt"

	"vitrine"
)

func ExampleParseSizing() {
	sizing, err := vitrine.ParseSizing("bn1s-sp2m-hs1l")
	if err != nil {
		fmt.Println(err)
		return
	}
	sprout := sizing.Part("sp")
	fmt.Printf("%s: %d instances, %d Sprouts of flavor %c\n", sizing, sizing.Instances(), sprout.Count, sprout.Initial)
	// Output: bn1s-sp2m-hs1l: 4 instances, 2 Sprouts of flavor m
}
