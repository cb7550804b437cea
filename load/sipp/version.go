package sipp

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"

	"vitrine"
)

// program is SIPp's executable.
const program = "sipp"

var versionPattern = regexp.MustCompile(`SIPp (v[0-9][^\s]*)`)

// Version returns the version of the SIPp on PATH, or a *vitrine.Unsupported if
// there is none.
func Version(ctx context.Context) (string, error) {
	path, err := findProgram()
	if err != nil {
		return "", err
	}
	// sipp -v may exit with a nonzero status, so only its output counts.
	out, err := exec.CommandContext(ctx, path, "-v").CombinedOutput()
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("ask %s for its version: output %.200q, error: %w", path, out, errors.Join(err, errors.New("no version")))
	}
	return string(m[1]), nil
}

func findProgram() (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &vitrine.Unsupported{What: "generator sipp", Missing: "the program sipp", Do: "install SIPp (Debian: sip-tester), or use the generator sip"}
	}
	return path, nil
}

// Check reports whether SIPp is installed.
func Check(ctx context.Context) []vitrine.Check {
	version, err := Version(ctx)
	return []vitrine.Check{vitrine.NewCheck("generator: sipp", version, err)}
}
