// Package sidecar is a proxy in front of one instance of a SIP registrar that keeps its
// locations in its own memory. It publishes them to a store, and restores what other
// instances have published. So any instance serves any user, and no registration is lost
// when an instance ends. Contain-ed (section 6) asks for such stubs for functions that
// cannot share their state.
//
// The registrar needs one change: it must accept REGISTERs from one address of the
// sidecar without credentials.
package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
	"vitrine/reference/ims/sipudp"
	"vitrine/reference/keep"
)

// endWithin is how long the function may take to end.
const endWithin = 10 * time.Second

// Run runs a sidecar until ctx is done or the function that it started ends. The error is
// a *vitrine.BadInput for wrong arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var function []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, function = args[:i], args[i+1:]
	}
	c := ims.NewCommand("sidecar", "A sidecar shares the locations that a SIP registrar keeps in its own memory, through a store.\n"+
		"After --, give the command of the registrar, which then starts and ends with the sidecar.", stdout, stderr)
	var listen, registrar, restore netip.AddrPort
	var k keep.Config
	c.Own(&listen, "listen", "address for requests, UDP: IP:PORT")
	c.Addr(&registrar, "function", true, "address of the registrar: IP:PORT")
	c.Own(&restore, "restore-from", "address that REGISTERs of the sidecar come from; the registrar must accept them without credentials: IP:PORT")
	var of spelling
	c.BoolVar(&of.caseSensitive, "case-sensitive", false, "users whose names differ in letter case alone are different users for the registrar")
	c.BoolVar(&of.anyDomain, "any-domain", false, "users with one name in different domains are one user for the registrar")
	timeout := c.Duration("timeout", 5*time.Second, "how long the registrar's answer may take")
	requests := c.Int("requests", 1024, "requests that wait for the store or the registrar at the same time; others are answered 503")
	users := c.Int("users", 100_000, "users whose locations are not restored again while the store has the same version")
	k.Flags(c, "locations", "locations")
	c.Positive("timeout", "requests", "users")
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	if !k.Given() {
		return c.Bad("no --store", "give the URL of the store that all instances share")
	}
	store, err := keep.New(k, "sidecar", c.Log, c.Registry)
	if err != nil {
		return err
	}
	known, err := lru.New[string, string](*users)
	if err != nil {
		return fmt.Errorf("make the table of users: %w", err)
	}
	socket, err := sipudp.Listen(listen)
	if err != nil {
		return ims.ListenError("listen", listen, err)
	}
	own, err := sipudp.Listen(restore)
	if err != nil {
		return errors.Join(ims.ListenError("restore-from", restore, err), socket.Close())
	}
	c.Connected = store.Connected
	s := &sidecar{
		socket: socket, own: own, function: registrar, spelling: of,
		store: store, known: known, slots: make(chan struct{}, *requests), seed: maphash.MakeSeed(), log: c.Log, counts: newCounts(c.Registry),
	}
	s.transactions = sipudp.NewTransactions(*timeout, s.timedOut)
	group, ctx := errgroup.WithContext(ctx)
	s.ctx = ctx
	if len(function) > 0 {
		group.Go(func() error { return runFunction(ctx, function, stdout, stderr) })
	}
	group.Go(func() error { return store.Run(ctx, nil) })
	group.Go(func() error { s.transactions.Run(ctx); return nil })
	group.Go(func() error { return socket.Serve(s.receiver(socket).Receive, nil) })
	group.Go(func() error { return own.Serve(s.receiver(nil).Receive, nil) })
	group.Go(func() error { <-ctx.Done(); return errors.Join(socket.Close(), own.Close()) })
	defer s.pending.Wait()
	return rest.Wait(ctx, group, c, socket.Local())
}

// runFunction runs the function until ctx is done. If the function ends before, that is an
// error.
func runFunction(ctx context.Context, command []string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endWithin
	err := cmd.Run()
	if ctx.Err() == nil {
		return fmt.Errorf("the function %s has ended: %w", command[0], cmp.Or(err, errors.New("exit status 0")))
	}
	return nil
}

// A sidecar is a transaction-stateful proxy (RFC 3261 section 16) in front of a function.
type sidecar struct {
	ctx          context.Context
	socket       *sipudp.Socket // of clients and the function
	own          *sipudp.Socket // sends the sidecar's own REGISTERs
	function     netip.AddrPort
	spelling     spelling // of users, as the function takes it
	transactions *sipudp.Transactions
	store        *keep.Store
	log          *slog.Logger
	counts       counts

	slots   chan struct{}  // limits the requests that wait
	pending sync.WaitGroup // requests that wait

	// known has, for each user, the version of the record that the function's locations
	// agree with.
	known *lru.Cache[string, string]
	// locks let one request at a time change a user's locations. Users share them by hash.
	locks [256]sync.Mutex
	seed  maphash.Seed
}

func (s *sidecar) lock(user string) *sync.Mutex {
	return &s.locks[maphash.String(s.seed, user)%uint64(len(s.locks))]
}

type counts struct {
	requests, restored, published, refused, failed, timeouts, garbage prometheus.Counter
}

func newCounts(registry *prometheus.Registry) counts {
	counter := ims.Counters(registry, "sidecar")
	return counts{
		requests:  counter("requests", "Requests received, without retransmissions."),
		restored:  counter("restored", "Locations that the sidecar bound at the function, or removed from it."),
		published: counter("published", "Changes of a user's locations, written to the store."),
		refused:   counter("rejected", "Requests answered 503 because too many wait."),
		failed:    counter("failed", "Requests answered 5xx because the store or the function did not do its part."),
		timeouts:  counter("timeouts", "Requests that the function did not answer in time."),
		garbage:   counter("garbage", "Datagrams that were no usable SIP message."),
	}
}
