package process

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// BenchmarkTurnover starts and stops a command, once bare and once in an instance. The difference
// is the cost of an instance. It also creates and removes instances.
func BenchmarkTurnover(b *testing.B) {
	command := []string{"sleep", "60"}
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command(command[0], command[1:]...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			check(b, cmd.Start())
			check(b, cmd.Process.Signal(syscall.SIGTERM))
			_ = cmd.Wait()
		}
	})
	for _, network := range []string{NetworkHost, NetworkAuto} {
		b.Run("instance, network "+network, func(b *testing.B) {
			in, _ := benchInstance(b, network)
			for b.Loop() {
				_, err := in.Start(b.Context(), vitrine.Command{Args: command})
				check(b, err)
				check(b, in.Stop(b.Context(), time.Second))
			}
		})
	}
	b.Run("create and remove", func(b *testing.B) {
		in, s := benchInstance(b, NetworkAuto)
		spec := in.spec
		spec.Name = "sprout-2"
		for b.Loop() {
			in, err := s.Create(b.Context(), spec)
			check(b, err)
			check(b, in.Remove(b.Context()))
		}
	})
}

func benchInstance(b *testing.B, network string) (*Instance, *Substrate) {
	b.Helper()
	run, err := runstate.New(filepath.Join(b.TempDir(), "runs"))
	check(b, err)
	b.Cleanup(func() { _ = run.Close() })
	s, err := New(Config{Run: run, Environ: os.Environ(), Network: network})
	check(b, err)
	b.Cleanup(func() { check(b, s.Close(context.Background())) })
	spec := substrate.Spec{Run: run.ID, Name: "sprout-1", Component: "sprout", Dir: b.TempDir()}
	if s.groups != nil {
		spec.VCPUs, spec.Memory = 1, 256<<20
	}
	in, err := s.Create(b.Context(), spec)
	check(b, err)
	return in.(*Instance), s
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
