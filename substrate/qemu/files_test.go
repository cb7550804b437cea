package qemu

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine"
	"vitrine/substrate/qemu/guest"
)

// TestMirrorFollowsALink checks that a link to a folder gives a machine the folder's content, and
// that a link to a folder inside another one is refused.
func TestMirrorFollowsALink(t *testing.T) {
	dir := t.TempDir()
	site, link := filepath.Join(dir, "site"), filepath.Join(dir, "link")
	page := filepath.Join(site, "page")
	if err := errors.Join(os.Mkdir(site, 0o755), os.WriteFile(page, []byte("text"), 0o600), os.Symlink(site, link)); err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go agentThatAgrees(far)
	c := newClient(near, nil)
	t.Cleanup(c.close)
	m := mirror{known: make(map[string]stamp)}
	if err := m.tree(t.Context(), c, link); err != nil {
		t.Fatal(err)
	}
	if err := m.tree(t.Context(), c, page); err != nil {
		t.Fatal(err)
	}
	want := []string{link, filepath.Join(link, "page"), page}
	if got := slices.Sorted(maps.Keys(m.known)); !slices.Equal(got, want) {
		t.Errorf("the machine got %q, want %q", got, want)
	}
	if err := m.tree(t.Context(), c, dir); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), link) {
		t.Errorf("a link to a folder inside a folder: got error %v, want bad input", err)
	}
}

// agentThatAgrees answers every request with success.
func agentThatAgrees(port net.Conn) {
	in, out := bufio.NewReader(port), guest.NewWriter(port)
	for {
		f, err := guest.ReadFrame(in)
		if err == nil && f.Kind == guest.KindRequest {
			err = out.Value(guest.KindAnswer, f.Number, guest.Answer{})
		}
		if err != nil {
			return
		}
	}
}
