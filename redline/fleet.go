package redline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"vitrine"
	"vitrine/director/client"
)

// A Director is one of the directors in front of the instances. *client.Client implements it.
type Director interface {
	Status(ctx context.Context) (client.Status, error)
	Instances(ctx context.Context) ([]client.Instance, error)
	Lease(ctx context.Context, typeName string) (client.Lease, error)
	Acquire(ctx context.Context, typeName string, r client.LeaseRequest) (client.Lease, error)
	Renew(ctx context.Context, typeName string, token uint64, c client.LeaseChange) (client.Lease, error)
	Release(ctx context.Context, typeName string, token uint64) (client.Lease, error)
}

const (
	askTime    = 2 * time.Second        // timeout of queries to directors
	changeTime = 5 * time.Second        // timeout of changes, which directors write to disk and apply
	againAfter = 100 * time.Millisecond // pause before a retry when a director refuses because of a hand-over
	leaseTime  = 10 * time.Second       // TTL of the lease, counted from each renewal
	leap       = 1 << 20                // random range of tokens; concurrent requests then use different tokens
)

// A fleet is the set of all directors in front of the type's instances, with the lease at them.
type fleet struct {
	directors []Director
	names     []string // names of the directors, for errors
	typeName  string
	instance  string   // the measured instance
	beside    []string // types whose instances are all on its host

	token   uint64 // token of the lease; 0: no lease
	renewed time.Time
	begun   []uint64 // transactions of the instance at the last reading, by director
}

// each calls do for all directors concurrently and joins the errors. It retries a director that
// answers 503 (Service Unavailable), until limit.
func (f *fleet) each(ctx context.Context, limit time.Duration, do func(ctx context.Context, i int, d Director) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	errs := make([]error, len(f.directors))
	var calls sync.WaitGroup
	for i, d := range f.directors {
		calls.Go(func() {
			for {
				err := do(ctx, i, d)
				if !isRefused(err, http.StatusServiceUnavailable) || ctx.Err() != nil {
					if err != nil {
						errs[i] = fmt.Errorf("director %s: %w", f.names[i], err)
					}
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(againAfter):
				}
			}
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

func isRefused(err error, status int) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == status
}

// acquire acquires the lease at all directors, with a token that is one higher than the highest
// token at any director. If a director refuses, acquire releases the lease at all of them.
func (f *fleet) acquire(ctx context.Context, holder string) error {
	var mu sync.Mutex
	last := uint64(0)
	err := f.each(ctx, askTime, func(ctx context.Context, _ int, d Director) error {
		l, err := d.Lease(ctx, f.typeName)
		mu.Lock()
		defer mu.Unlock()
		last = max(last, l.Token)
		if err == nil && l.Holder != "" {
			return fmt.Errorf("%s has the lease of type %s for another %.0f s: only one instance of a type can be measured at a time", l.Holder, f.typeName, l.Left)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	f.token, f.renewed = last+1+rand.Uint64N(leap), time.Now()
	err = f.each(ctx, changeTime, func(ctx context.Context, _ int, d Director) error {
		_, err := d.Acquire(ctx, f.typeName, client.LeaseRequest{Holder: holder, TTL: leaseTime.Seconds(), Token: f.token})
		return err
	})
	if err == nil {
		err = f.await(ctx)
	}
	if err != nil {
		return fmt.Errorf("take the lease: %w", errors.Join(err, f.release(ctx)))
	}
	return nil
}

// set changes the leased weights, and waits until all directors apply them.
func (f *fleet) set(ctx context.Context, weights map[string]float64) error {
	if err := f.renew(ctx, client.LeaseChange{Weights: weights}); err != nil {
		return err
	}
	return f.await(ctx)
}

// renew prolongs the lease at all directors.
func (f *fleet) renew(ctx context.Context, change client.LeaseChange) error {
	now := time.Now()
	err := f.each(ctx, changeTime, func(ctx context.Context, _ int, d Director) error {
		_, err := d.Renew(ctx, f.typeName, f.token, change)
		return err
	})
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	f.renewed = now
	return nil
}

// release releases the lease at all directors. At a director that does not answer, the lease
// expires within leaseTime.
func (f *fleet) release(ctx context.Context) error {
	if f.token == 0 {
		return nil
	}
	token := f.token
	f.token = 0
	err := f.each(context.WithoutCancel(ctx), changeTime, func(ctx context.Context, _ int, d Director) error {
		_, err := d.Release(ctx, f.typeName, token)
		if isRefused(err, http.StatusConflict) {
			return nil // this director does not have the lease
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("release the lease; it expires within %s at the directors that failed: %w", leaseTime, err)
	}
	return nil
}

// await waits until all directors have the same digest and no pending change.
func (f *fleet) await(ctx context.Context) error {
	const poll = 20 * time.Millisecond
	end := time.Now().Add(changeTime)
	for {
		agree, err := f.agree(ctx)
		switch {
		case err != nil:
			return err
		case agree:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the digests of the directors still differ after %s", changeTime)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// agree reports whether all directors have the same digest and no pending change.
func (f *fleet) agree(ctx context.Context) (bool, error) {
	all := make([]client.Status, len(f.directors))
	err := f.each(ctx, askTime, func(ctx context.Context, i int, d Director) (err error) {
		all[i], err = d.Status(ctx)
		return err
	})
	for _, s := range all {
		if s.Pending || s.Digest != all[0].Digest {
			return false, err
		}
	}
	return err == nil, err
}

// A reading has the counts of all directors at one time.
type reading struct {
	own        client.Reading // the measured instance
	others     client.Reading // other instances of the type
	neighbours client.Reading // other instances of any type on the same host
	healthy    int            // other active instances of the type that are up at all directors
	trouble    string         // why the instance cannot be measured; empty: no reason
	restarted  bool           // a director has reset its counters since the last reading
}

// read takes a reading from all directors.
func (f *fleet) read(ctx context.Context) (r reading, err error) {
	at := time.Now()
	lists := make([][]client.Instance, len(f.directors))
	err = f.each(ctx, askTime, func(ctx context.Context, i int, d Director) (err error) {
		lists[i], err = d.Instances(ctx)
		return err
	})
	if err != nil {
		return r, err
	}
	own, others, neighbours := f.sort(lists)
	r.own, r.others, r.neighbours = client.Read(at, own...), client.Read(at, others...), client.Read(at, neighbours...)
	if len(own) < len(f.directors) {
		r.trouble = "the directors do not have it"
	}
	first := f.begun == nil
	if first {
		f.begun = make([]uint64, len(f.directors))
	}
	for i := range own {
		switch {
		case own[i].State != vitrine.Active:
			r.trouble = "its state is " + own[i].State.String()
		case own[i].Health != "up":
			r.trouble = "its health is " + own[i].Health + " " + own[i].Reason
		}
		r.restarted = r.restarted || !first && own[i].Transactions < f.begun[i]
		f.begun[i] = own[i].Transactions
	}
	r.healthy = countHealthy(others, len(f.directors))
	return r, nil
}

// sort splits the directors' lists into three: the measured instance, the other instances of its
// type, and the other instances of any type on its host.
func (f *fleet) sort(lists [][]client.Instance) (own, others, neighbours []client.Instance) {
	var host netip.Addr
	for _, list := range lists {
		for i := range list {
			if list[i].Name == f.instance {
				host = list[i].Address.Addr()
			}
		}
	}
	for _, list := range lists {
		for i := range list {
			if list[i].Name == f.instance {
				own = append(own, list[i])
				continue
			}
			if list[i].Type == f.typeName {
				others = append(others, list[i])
			}
			if f.isNeighbour(&list[i], host) {
				neighbours = append(neighbours, list[i])
			}
		}
	}
	return own, others, neighbours
}

// isNeighbour reports whether another instance is on the measured instance's host, whose address is
// given. Instances of one host may have different addresses, as on loopback.
func (f *fleet) isNeighbour(in *client.Instance, host netip.Addr) bool {
	at := in.Address.Addr()
	return at == host || at.IsLoopback() && host.IsLoopback() || slices.Contains(f.beside, in.Type)
}

// countHealthy returns the number of instances that are active and up at all directors.
func countHealthy(all []client.Instance, directors int) (n int) {
	up := map[string]int{}
	for i := range all {
		if all[i].State == vitrine.Active && all[i].Health == "up" {
			up[all[i].Name]++
		}
	}
	for _, seen := range up {
		if seen == directors {
			n++
		}
	}
	return n
}
