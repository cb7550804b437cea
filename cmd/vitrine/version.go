package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// unknownRelease is the release of a build without a version.
const unknownRelease = "development"

// release is set by the linker: -X main.release=v0.1.0.
var release = unknownRelease

// versionText returns the version for people.
func versionText() string {
	return fmt.Sprintf("vitrine %s %s %s/%s", toolVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// toolVersion returns the release, with the commit from which it was built, if known.
func toolVersion() string {
	v := release
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				v += "+" + s.Value[:12]
			}
			if s.Key == "vcs.modified" && s.Value == "true" && !strings.Contains(v, "dirty") {
				v += "-dirty"
			}
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, versionText())
			return err
		},
	}
}
