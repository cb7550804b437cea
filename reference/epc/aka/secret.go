package aka

import "crypto/sha256"

// SecretOf returns the secret of a subscriber that has none of its own: K is the
// first 16 octets of SHA-256 of "K" and the IMSI's digits, OPc those of "OPc" and
// the digits. So an HSS and a generator know the same subscribers without a file.
// It protects nothing: everybody can compute it.
func SecretOf(imsi string) Secret {
	k, opc := sha256.Sum256([]byte("K"+imsi)), sha256.Sum256([]byte("OPc"+imsi))
	return Secret{K: [16]byte(k[:]), OPc: [16]byte(opc[:])}
}
