package director

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/director/client"
)

// TestStalledDisk lets a write of the state file take long. Meanwhile the director must answer, put changes in
// force, and refuse a hand-over. At the end the file must have the last change, not that of the late write.
func TestStalledDisk(t *testing.T) {
	r := runGood(t)
	release := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn() // Run waits for the disk
	r.publishing.Lock()
	r.disk.replace = func(path string, data []byte, mode fs.FileMode) error {
		<-release
		return os.WriteFile(path, data, mode)
	}
	r.publishing.Unlock()
	ctx := t.Context()
	if _, err := r.client.Drain(ctx, "reg-1"); err != nil {
		t.Fatal(err)
	}
	s := r.settle(t)
	if s.Epoch != 2 || !strings.Contains(s.Unsaved, errLate.Error()) {
		t.Fatalf("got status %+v, want epoch 2, and that the disk does not finish", s)
	}
	if err := r.client.PutRules(ctx, []client.Rule{{Type: "session"}}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := r.freeze(short); err == nil {
		t.Error("a director with a change that the file lacks was handed over")
	}
	goOn()
	r.publishing.Lock()
	r.disk.wait()
	r.publishing.Unlock()
	r.saveTerms()
	saved, err := readState(r.config.Load().State)
	if err != nil || len(saved.Rules) != 1 || saved.Current.Instances[0].State != vitrine.Draining {
		t.Errorf("got state %+v, %v, want reg-1 draining and one rule", saved, err)
	}
	if why := r.settle(t).Unsaved; why != "" {
		t.Errorf("after the disk goes on, the status says %q", why)
	}
}

// TestLateWriteIsNotRepeated lets each write take longer than the director waits. A second try with the same
// data must report the result of the first, or such a disk would never have the state.
func TestLateWriteIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := 0
		k := disk{replace: func(string, []byte, fs.FileMode) error {
			writes++
			time.Sleep(2 * diskPatience)
			return nil
		}}
		for i, c := range []struct {
			data string
			want error
		}{{"a", errLate}, {"a", nil}, {"b", errLate}, {"c", errLate}, {"c", nil}} {
			k.wait()
			if err := k.write("", []byte(c.data), 0o600); !errors.Is(err, c.want) {
				t.Errorf("call %d: got error %v, want %v", i, err, c.want)
			}
		}
		if writes != 3 {
			t.Errorf("got %d writes, want 3", writes)
		}
	})
}
