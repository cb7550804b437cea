package main

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric/fabrictest"
	"vitrine/substrate/application"
	"vitrine/substrate/qemu/machine"
)

// TestSubstrateVersions checks that every substrate reports the version of the software that it
// drives. It must not boot a machine.
func TestSubstrateVersions(t *testing.T) {
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	program, err := machine.Version(t.Context())
	if err != nil && !vitrine.IsUnsupported(err) {
		t.Fatal(err)
	}
	if err == nil && !strings.Contains(program, "version ") {
		t.Errorf("version of QEMU: got %q", program)
	}
	for name, want := range map[string]string{"process": "kernel", "qemu": program, "unikernel": program} {
		if got := b.substrateVersion(t.Context(), name, document.Node{}); got != want {
			t.Errorf("%s: got version %q, want %q", name, got, want)
		}
	}
}

// TestCleanersContinueAfterAnError checks that an unreachable engine gives an error and does not
// stop the other cleaners.
func TestCleanersContinueAfterAnError(t *testing.T) {
	t.Setenv("DOCKER_HOST", "ssh://nowhere")
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	b, err := newBackends(run, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	list, err := b.cleaners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	for _, c := range list {
		if _, err := c.Clean(t.Context()); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "docker") {
		t.Errorf("got errors %v of the cleaners, want one of docker", errs)
	}
	if _, ok := list[len(list)-1].(application.Cleaner); !ok {
		t.Errorf("the last cleaner is a %T, want application.Cleaner", list[len(list)-1])
	}
}

// TestAcceleratorAsksOnlyMachines checks that container engines are not asked for an accelerator.
func TestAcceleratorAsksOnlyMachines(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{}, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
			asked <- struct{}{}
		}
	}()
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if found, unconfined := b.accelerators(t.Context(), []string{"process", "docker"}, nil); len(found)+len(unconfined) > 0 {
		t.Errorf("processes and containers need no accelerator: got %q", found)
	}
	select {
	case <-asked:
		t.Error("the Docker engine got a request")
	default:
	}
}
