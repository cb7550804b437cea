package main

import (
	"strings"
	"testing"

	"vitrine/store/nudsf"
	"vitrine/store/nudsf/timer"
)

// TestClientsFindTheStore checks that a client made from an OpenAPI document asks, by default, the
// address that a store listens on by default.
func TestClientsFindTheStore(t *testing.T) {
	listen := (&app{}).storeRunCommand().Flags().Lookup("listen").DefValue
	want := `{default: "http://` + strings.Trim(listen, "[]") + `"}`
	for root, document := range map[string][]byte{nudsf.Root: nudsf.OpenAPI, timer.Root: timer.OpenAPI} {
		if !strings.Contains(string(document), want) {
			t.Errorf("the OpenAPI document of %s lacks the server %s", root, want)
		}
	}
}
