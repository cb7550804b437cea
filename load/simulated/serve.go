package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"vitrine"
	"vitrine/load"
	"vitrine/search/sim"
)

// path is the URL path to which the generator sends trials.
const path = "/trial"

// A request is a trial that the generator requests from the component.
type request struct {
	Params   map[string]string
	Rate     float64 // calls per second
	Duration float64 // seconds
	Warmup   float64 // seconds
	Seed     uint64
}

// An answer is the result of a trial.
type answer struct {
	Seconds  []vitrine.Second
	Latency  vitrine.Latency
	InFlight []int64 // nil if the function does not report it
}

// Serve runs the deployed component. It runs trials on the simulated function of its size until
// ctx ends. A fresh deployment is a fresh process, so it has no state of earlier trials. The error
// is a *vitrine.BadInput for wrong arguments.
func Serve(ctx context.Context, args []string, stdout, _ io.Writer) error {
	flags := pflag.NewFlagSet("simulated", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	listen := flags.String("listen", "", "address, HTTP: IP:PORT")
	size := flags.String("sizing", "", "size of the deployment: ${VITRINE_SIZING}")
	flags.Usage = func() {
		fmt.Fprintf(stdout, "Simulated is the component that runs the trials of the generator simulated.\n\nUsage: vitrine reference simulated FLAGS\n\n%s", flags.FlagUsages())
	}
	wrong := func(found, want string) error {
		return &vitrine.BadInput{File: "vitrine reference simulated", Found: found, Want: want}
	}
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return wrong(err.Error(), "run with --help to see the flags")
	}
	if _, err := netip.ParseAddrPort(*listen); err != nil {
		return wrong(fmt.Sprintf("--listen %q", *listen), "want IP:PORT")
	}
	sizing, err := vitrine.ParseSizing(*size)
	if err != nil {
		return wrong(fmt.Sprintf("--sizing: %v", err), "want ${VITRINE_SIZING}")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("simulated: listen on %s: %w", *listen, err)
	}
	h := &host{sizing: sizing, now: time.Now}
	mux := http.NewServeMux()
	mux.Handle("POST "+path, h)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("simulated: %w", err)
	}
	return nil
}

// A host runs trials, one after the other, on one deployment.
type host struct {
	sizing vitrine.Sizing
	now    func() time.Time

	mu     sync.Mutex
	params map[string]string
	on     sim.Deployment
	repeat int // number of the deployment, which sets its luck
	trials int
	ended  time.Time // end of the last trial
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked request
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, err := h.run(asked)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // the generator reports a truncated answer
}

// run runs one trial. It creates the function at the first trial and when the
// parameters change. The time between two trials counts as rest of the function.
func (h *host) run(asked request) (answer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := Decode(asked.Params)
	if err != nil {
		return answer{}, err
	}
	if h.on == nil || !maps.Equal(h.params, asked.Params) {
		f, err := p.Function(h.sizing)
		if err != nil {
			return answer{}, err
		}
		h.repeat = int(asked.Seed % (1 << 31))
		h.on, h.params, h.trials, h.ended = f.Deploy(h.sizing, h.repeat, 0), asked.Params, 0, h.now()
	}
	h.on.Rest(h.now().Sub(h.ended))
	defer func() { h.ended = h.now() }()
	h.trials++
	trial := sim.Trial{Sizing: h.sizing, Rate: asked.Rate, Poisson: p.Arrivals == load.Poisson, Repeat: h.repeat, Attempt: 2 * h.trials}
	if asked.Warmup > 0 {
		trial.Duration = time.Duration(asked.Warmup * float64(time.Second))
		h.on.Run(trial)
	}
	trial.Duration, trial.Attempt = time.Duration(asked.Duration*float64(time.Second)), 2*h.trials+1
	o := h.on.Run(trial)
	return answer{Seconds: o.Seconds, Latency: o.Latency, InFlight: o.InFlight}, nil
}
