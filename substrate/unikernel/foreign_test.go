package unikernel

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/substrate"
	"vitrine/substrate/substratetest"
)

// kernelOf assembles testdata/hello.S with the options for gcc. It returns the path of the kernel.
func kernelOf(t *testing.T, options ...string) string {
	t.Helper()
	needs(t, "gcc")
	file := filepath.Join(t.TempDir(), "kernel")
	args := append([]string{"-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x100000,--build-id=none,-z,max-page-size=4096", "-o", file, "testdata/hello.S"}, options...)
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// TestUnikernelBroughtByUser boots kernels without vitrine's first program, one of each format.
func TestUnikernelBroughtByUser(t *testing.T) {
	kernel(t) // needed to probe the accelerator
	t.Run("Multiboot", func(t *testing.T) {
		s := onBridge(t, kernelOf(t), func(c *Config) { c.Append = "mode=fast" })
		p := s.start("--listen", "80")
		s.logged("multiboot: ")
		s.logged("ip=" + s.address + "::")
		s.logged("mode=fast --listen 80\n")
		if err := s.instance.Stop(s.ctx, 50*time.Millisecond); err != nil { // the kernel does not handle the power button
			t.Fatal(err)
		}
		<-p.Done()
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), "switched off") {
			t.Errorf("the instance ended with %v", err)
		}
	})
	t.Run("PVH", func(t *testing.T) {
		s := onBridge(t, kernelOf(t, "-DPVH"), func(*Config) {})
		p := s.start("one", "two")
		select {
		case <-p.Done(): // the kernel resets the machine, which ends it
		case <-s.ctx.Done():
			t.Fatal("the instance did not stop")
		}
		if err := p.Err(); err != nil {
			t.Errorf("the instance ended with %v", err)
		}
		s.logged("PVH: ")
		s.logged(" one two\n")
	})
	t.Run("BzImage", func(t *testing.T) {
		s := onBridge(t, kernel(t).Kernel, func(*Config) {})
		s.start()
		s.logged("Linux version ")
		s.logged("No working init found") // the kernel has no files
	})
}

func TestUnikernelBadImages(t *testing.T) {
	s, run := substrateOf(t, t.TempDir(), func(*Config) {})
	for _, name := range []string{"never-built", "./no/such/file", "../up"} {
		_, err := s.Create(t.Context(), substrate.Spec{Run: run.ID, Name: "app-1", Component: "app", Image: name, Dir: t.TempDir()})
		if !vitrine.IsBadInput(err) {
			t.Errorf("image %q: got %v, want BadInput", name, err)
		}
	}
	if found, err := substratetest.Left(run.ID); err != nil || len(found) > 0 {
		t.Errorf("resources left by refused instances: %q, error %v", found, err)
	}
}
