package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// mlrsearchVersion is the peer's on PyPI.
const mlrsearchVersion = "1.2.1"

//go:embed mlrsearch/bridge.py
var bridgeSource []byte

// installMLRsearch makes a virtual environment with the package in the folder,
// and gives its interpreter.
func installMLRsearch(ctx context.Context, dir string) (python string, err error) {
	system, err := exec.LookPath("python3")
	if err != nil {
		return "", &vitrine.Unsupported{What: "MLRsearch", Missing: "python3", Do: "install python3 and python3-venv"}
	}
	venv := filepath.Join(dir, "mlrsearch")
	python = filepath.Join(venv, "bin", "python3")
	for _, args := range [][]string{
		{system, "-m", "venv", venv},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "MLRsearch==" + mlrsearchVersion},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", &vitrine.Unsupported{What: "MLRsearch", Missing: fmt.Sprintf("%v: %v: %s", args, err, out),
				Do: "install python3-venv, and let pip reach a registry"}
		}
	}
	return python, os.WriteFile(filepath.Join(dir, "bridge.py"), bridgeSource, 0o600)
}

// A peer is MLRsearch in a process of its own, which asks for one trial after
// the other.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startPeer(ctx context.Context, python, dir string) (*peer, error) {
	p := &peer{cmd: exec.CommandContext(ctx, python, filepath.Join(dir, "bridge.py"))}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

func (p *peer) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// A request is what the peer says: a trial that it wants, or its bounds.
type request struct {
	Load     float64  `json:"load"`
	Duration float64  `json:"duration"`
	Done     bool     `json:"done"`
	Low      *float64 `json:"low"`
	High     *float64 `json:"high"`
}

// search runs one search on the function, with its trials in simulated time:
// the function rests for the overhead before each.
func (p *peer) search(f *sim.Function, sizing vitrine.Sizing, cfg rate.Config) (sim.Score, error) {
	enc := json.NewEncoder(p.in)
	err := enc.Encode(map[string]float64{
		"min": cfg.Min, "max": cfg.Max, "loss": 1 - cfg.Thresholds[0], "width": cfg.Precision,
		"shortest": 1, "longest": cfg.Duration.Seconds(),
	})
	on := f.Deploy(sizing, 1, 0)
	var load, wall time.Duration
	attempts := map[float64]int{}
	for trials := 0; err == nil; trials++ {
		var ask request
		if ask, err = p.read(); err != nil {
			break
		}
		if ask.Done {
			low, high := cfg.Min, cfg.Max
			if ask.Low != nil {
				low = *ask.Low
			}
			if ask.High != nil {
				high = *ask.High
			}
			return sim.JudgeBounds(low, high, f.Capacity(sizing, cfg.Thresholds[0]), trials, load, wall), nil
		}
		duration := time.Duration(ask.Duration * float64(time.Second))
		on.Rest(cfg.Overhead)
		attempts[ask.Load]++
		o := on.Run(sim.Trial{Sizing: sizing, Rate: ask.Load, Duration: duration, Repeat: 1, Attempt: attempts[ask.Load]})
		load += duration
		wall += duration + cfg.Overhead
		err = enc.Encode(map[string]int64{"offered": o.Scheduled, "lost": o.Scheduled - o.Succeeded})
	}
	return sim.Score{}, fmt.Errorf("MLRsearch: %w", err)
}

func (p *peer) read() (request, error) {
	var r request
	if !p.out.Scan() {
		return r, errors.Join(errors.New("it ended"), p.out.Err())
	}
	return r, json.Unmarshal(p.out.Bytes(), &r)
}
