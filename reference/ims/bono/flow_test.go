package bono

import (
	"net/netip"
	"testing"
)

func TestFlows(t *testing.T) {
	ours, others := flows{[]byte("ours")}, flows{[]byte("others")}
	for _, text := range []string{"192.0.2.1:5060", "[2001:db8::1]:65535"} {
		client := netip.MustParseAddrPort(text)
		token := ours.token(client)
		if got, ok := ours.client(token); !ok || got != client {
			t.Errorf("token of %s decoded as %s, %t", client, got, ok)
		}
		if got, ok := others.client(token); ok {
			t.Errorf("accepted another Bono's token as %s", got)
		}
		changed := []byte(token)
		changed[len(changed)-1] ^= 1
		if got, ok := ours.client(string(changed)); ok && got != client { // the last bits of base64 may be unused
			t.Errorf("accepted a forged token as %s", got)
		}
	}
}

func FuzzFlow(f *testing.F) {
	ours := flows{[]byte("ours")}
	f.Add(ours.token(netip.MustParseAddrPort("192.0.2.1:5060")))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		if client, ok := ours.client(token); ok && !client.IsValid() {
			t.Errorf("accepted %q as an invalid address", token)
		}
	})
}
