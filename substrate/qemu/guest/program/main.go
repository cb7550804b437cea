// Program is only the guest's agent, for tests of the substrate. It has the same code as in
// vitrine, but builds faster.
package main

import (
	"context"
	"fmt"
	"os"

	"vitrine/substrate/qemu/guest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "want a verb")
		os.Exit(2)
	}
	if err := guest.Main(context.Background(), os.Args[:1], os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "vitrine:", err)
		os.Exit(1)
	}
}
