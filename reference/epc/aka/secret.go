package aka

import "crypto/sha256"

// SecretOf returns the default secret of a subscriber, so that an HSS and a
// generator agree on subscribers without a file. K is the first 16 octets of the
// SHA-256 of "K" and the IMSI's digits; OPc is the same for "OPc". The secret
// protects nothing, because everybody can compute it.
func SecretOf(imsi string) Secret {
	k, opc := sha256.Sum256([]byte("K"+imsi)), sha256.Sum256([]byte("OPc"+imsi))
	return Secret{K: [16]byte(k[:]), OPc: [16]byte(opc[:])}
}
