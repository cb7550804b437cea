package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"vitrine"
	"vitrine/search/sim"
)

// scikitVersion is the version on PyPI of the library whose Gaussian process
// the sizes are searched with for comparison. It is well kept and installs as a
// wheel; scikit-optimize, which has the whole search, was last released in 2024.
const scikitVersion = "1.9.1"

//go:embed bayes/bridge.py
var bayesSource []byte

// installBayes makes a virtual environment with the library in the folder, and
// gives its interpreter.
func installBayes(ctx context.Context, dir string) (python string, err error) {
	system, err := exec.LookPath("python3")
	if err != nil {
		return "", &vitrine.Unsupported{What: "Bayesian optimisation", Missing: "python3", Do: "install python3 and python3-venv"}
	}
	venv := filepath.Join(dir, "bayes")
	python = filepath.Join(venv, "bin", "python3")
	for _, args := range [][]string{
		{system, "-m", "venv", venv},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "scikit-learn==" + scikitVersion},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", &vitrine.Unsupported{What: "Bayesian optimisation", Missing: fmt.Sprintf("%v: %v: %s", args, err, out),
				Do: "install python3-venv, and let pip reach a registry"}
		}
	}
	return python, os.WriteFile(filepath.Join(dir, "bayes.py"), bayesSource, 0o600)
}

// A bayes is the Bayesian optimisation in a process of its own.
type bayes struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startBayes(ctx context.Context, python, dir string) (*bayes, error) {
	b := &bayes{cmd: exec.CommandContext(ctx, python, filepath.Join(dir, "bayes.py"))}
	b.cmd.Stderr = os.Stderr
	b.cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	var err error
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	b.out = bufio.NewScanner(out)
	return b, b.cmd.Start()
}

func (b *bayes) stop() error { return errors.Join(b.in.Close(), b.cmd.Wait()) }

// bayesStart is how many sizings it tries before its first Gaussian process:
// the smallest, and others at random.
const bayesStart = 5

// search counts the deployments until the first within reach of the best, which
// it is not told: it has no rule of its own for when to stop, and is spared
// measuring its winner again. At the most it is given so many.
func (b *bayes) search(c sim.Cluster, sizings []vitrine.Sizing, seed uint64, measure func(vitrine.Sizing) float64,
	enough func(vitrine.Sizing) bool, most int) (int, error) {
	random := rand.New(rand.NewPCG(seed, 6))
	start := append([]int{0}, random.Perm(len(sizings) - 1)[:bayesStart-1]...)
	for i := range start[1:] {
		start[i+1]++
	}
	var say any = map[string]any{"features": features(c, sizings), "start": start, "seed": seed}
	for n := 1; n <= most; n++ {
		if err := json.NewEncoder(b.in).Encode(say); err != nil {
			return 0, fmt.Errorf("the Bayesian optimisation: %w", err)
		}
		if !b.out.Scan() {
			return 0, fmt.Errorf("the Bayesian optimisation: %w", errors.Join(errors.New("it ended"), b.out.Err()))
		}
		var asked struct{ Next int }
		if err := json.Unmarshal(b.out.Bytes(), &asked); err != nil {
			return 0, fmt.Errorf("the Bayesian optimisation: %w", err)
		}
		if asked.Next < 0 || enough(sizings[asked.Next]) {
			return n, nil
		}
		say = map[string]float64{"value": math.Log(measure(sizings[asked.Next]))}
	}
	return most, nil
}

// features are what a Gaussian process can see likeness in: for each component
// the logarithms of its vCPUs in all and of its instances.
func features(c sim.Cluster, sizings []vitrine.Sizing) [][]float64 {
	var all [][]float64
	for _, s := range sizings {
		var row []float64
		for _, p := range s {
			row = append(row, math.Log2(c.Resources(vitrine.Sizing{p}).VCPUs), math.Log2(float64(p.Count)))
		}
		all = append(all, row)
	}
	return all
}
