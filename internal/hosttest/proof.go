package hosttest

import (
	"os"
	"strconv"
	"testing"
)

// howMany is the environment variable that sets the length of proofs under load, in
// transactions (docs/proofs.md).
const howMany = "VITRINE_PROOF_TRANSACTIONS"

// ProofLength returns the length of a proof, and whether one was asked for.
func ProofLength(t testing.TB) (transactions int64, full bool) {
	t.Helper()
	text := os.Getenv(howMany)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", howMany, err)
	}
	return n, true
}
