package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"vitrine"
)

// A pythonPeer is a search from PyPI that is compared with ours. A script wraps it and exchanges
// JSON over standard input and output, one message per line.
type pythonPeer struct {
	name     string // for messages: "MLRsearch"
	pkg      string // pip requirement: "MLRsearch==1.2.1"
	script   []byte
	settings []string // additional environment, KEY=value
}

// A venv is a virtual environment with a peer's package and script.
type venv struct {
	pythonPeer
	python, file string
}

// install creates the virtual environment in the folder.
func (p pythonPeer) install(ctx context.Context, dir string) (venv, error) {
	system, err := exec.LookPath("python3")
	if err != nil {
		return venv{}, &vitrine.Unsupported{What: p.name, Missing: "python3", Do: "install python3 and python3-venv"}
	}
	v := venv{p, filepath.Join(dir, "venv", "bin", "python3"), filepath.Join(dir, "bridge.py")}
	for _, args := range [][]string{
		{system, "-m", "venv", filepath.Join(dir, "venv")},
		{v.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", p.pkg},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			if ctx.Err() != nil {
				return v, ctx.Err()
			}
			return v, &vitrine.Unsupported{What: p.name, Missing: fmt.Sprintf("%v: %v: %s", args, err, out),
				Do: "install python3-venv, and let pip reach a registry"}
		}
	}
	return v, os.WriteFile(v.file, p.script, 0o600)
}

// A dialogue is a running script of a peer.
type dialogue struct{ *helper }

func (v venv) start(ctx context.Context) (*dialogue, error) {
	cmd := exec.CommandContext(ctx, v.python, v.file)
	cmd.Env = append(os.Environ(), v.settings...)
	h, err := startHelper(cmd, (*exec.Cmd).Start)
	return &dialogue{h}, err
}

func (b *dialogue) send(message any) error { return json.NewEncoder(b.in).Encode(message) }

func (b *dialogue) receive(into any) error {
	line, err := b.line()
	if err != nil {
		return fmt.Errorf("the script ended: %w", err)
	}
	return json.Unmarshal([]byte(line), into)
}
