// Package e2e tests the affinity analysis against the truth. The reference IMS and the
// reference EPC run in network namespaces and serve users. The tests analyse a capture of
// their traffic and compare the result with the message logs of the functions
// (internal/truth).
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"vitrine/fabric/impair"
	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/load/sip"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/pcrf"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/sgw"
	"vitrine/reference/ims/bono"
	"vitrine/reference/ims/homer"
	"vitrine/reference/ims/homestead"
	"vitrine/reference/ims/ralf"
	"vitrine/reference/ims/sprout"
	"vitrine/store/embedded"
	"vitrine/store/service"
	"vitrine/store/service/servicetest"
)

// asProgram is the environment variable that makes the test binary a function, a store
// or a generator, so that each has a process in a namespace of its own.
const asProgram = "AFFINITY_TEST_PROGRAM"

var programs = map[string]hosttest.Program{
	"bono": bono.Run, "sprout": sprout.Run, "homestead": homestead.Run, "homer": homer.Run, "ralf": ralf.Run,
	"mme": mme.Run, "sgw": sgw.Run, "pgw": pgw.Run, "hss": hss.Run, "pcrf": pcrf.Run,
	"store": runStore, "sip": runSIP,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == impair.Verb {
		end(impair.Serve(context.Background(), time.Now, os.Stdin, os.Stdout))
		return
	}
	name := os.Getenv(asProgram)
	if name == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	end(programs[name](ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runStore runs a store with the embedded engine, over HTTP.
func runStore(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := pflag.NewFlagSet("store", pflag.ContinueOnError)
	listen, dir := flags.String("listen", "", ""), flags.String("dir", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	engine, err := embedded.Open(embedded.Config{Dir: *dir, Now: time.Now, Logger: log, Sync: embedded.SyncNever})
	if err != nil {
		return err
	}
	return servicetest.Run(ctx, *listen, engine, service.Config{Logger: log}, stdout)
}

// runSIP plays a trial of the SIP generator, which is its only argument.
func runSIP(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var t load.Trial
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return err
	}
	return sip.Run(ctx, t, stdout, stderr)
}
