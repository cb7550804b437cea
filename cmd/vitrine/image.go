package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/image"
	"vitrine/image/debian"
	"vitrine/image/unikernel"
	"vitrine/substrate"
	"vitrine/substrate/application"
	"vitrine/substrate/docker"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu"
)

// packers returns the image packer of each substrate. A new packer is one line.
func packers(cache image.Cache, log *slog.Logger) map[string]image.Packer {
	return map[string]image.Packer{
		"process":   image.Layer{},
		"docker":    image.Container{},
		"qemu":      debian.Packer{Builder: debian.Builder{Cache: cache, Logger: log, Environ: os.Environ()}},
		"unikernel": unikernel.Packer{Builder: unikernel.Builder{Cache: cache, Logger: log}},
	}
}

// environment is os.Getenv, but a service without HOME has its user's home.
func environment(name string) string {
	if v := os.Getenv(name); v != "" || name != "HOME" {
		return v
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// applications wraps the substrate so that instances of a run can start from the images that were
// built for it.
func (b *backends) applications(name string, p place) (substrate.Substrate, error) {
	cache, err := image.FindCache("", environment)
	if err != nil {
		return nil, err
	}
	c := application.Config{Substrate: p, Name: name, Store: image.Store{Cache: cache, Packers: packers(cache, b.log)}, Run: b.run, Seen: b.images}
	switch p := p.(type) {
	case *process.Substrate:
		c.Inside = []string{b.self, insideVerb}
	case *qemu.Substrate:
		c.Started = true
	case *docker.Substrate:
		c.Load = func(ctx context.Context, i image.Image) (string, error) {
			id, err := image.ContainerID(i.File)
			if err != nil {
				return "", err
			}
			return p.Load(ctx, i.File, id, image.Reference(i.Name))
		}
	}
	return application.New(c), nil
}

// insideVerb runs a command with an image as its root folder, on this host.
const insideVerb = "inside"

func (a *app) insideCommand() *cobra.Command {
	return &cobra.Command{
		Use:    insideVerb + " ROOT SHARED USER DIR COMMAND...",
		Short:  "Run a command with the files of an image as its root folder",
		Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, given []string) error { return application.Inside(given, os.Environ()) },
	}
}

// An images is the state that the image verbs share.
type images struct {
	*app
	cache  string
	json   bool
	chosen map[string]*bool // by substrate: whether its flag is set
}

func (a *app) imageCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Build and list the images of applications for all substrates",
		Long: "One description, application.yaml, gives an application's images for all substrates:\n" +
			"files for this host (process), an archive for docker, a disk for virtual machines\n" +
			"(qemu) and a unikernel. All have the same program and the same configuration.\n" +
			"A component whose image is the application's name runs in them.\n" +
			"See docs/images.md, and vitrine schema application.",
		Args: checkVerb,
		RunE: showHelp,
	}
	c.AddCommand(a.imageBuild(), a.imageList(), a.imageSize(), a.imageRemove())
	return c
}

// imageVerb adds the common flags to an image command and makes it call run.
func (a *app) imageVerb(c *cobra.Command, run func(ctx context.Context, i *images, s image.Store, given []string) error) *cobra.Command {
	i := &images{app: a, chosen: make(map[string]*bool)}
	c.Flags().StringVar(&i.cache, "cache", "", "folder of images and their build inputs (default: "+image.CacheEnv+", else the user's cache)")
	c.Flags().BoolVar(&i.json, "json", false, "print JSON")
	for name := range packers(image.Cache{}, nil) {
		i.chosen[name] = c.Flags().Bool(name, false, "select "+name+"; without these flags: all substrates")
	}
	c.RunE = func(c *cobra.Command, given []string) error {
		cache, err := image.FindCache(i.cache, environment)
		if err != nil {
			return err
		}
		log := slog.New(&notes{out: a.stderr})
		return run(c.Context(), i, image.Store{Cache: cache, Packers: packers(cache, log)}, given)
	}
	return c
}

// substrates returns the substrates that flags name, or all if there are none.
func (i *images) substrates() []string {
	all := slices.Sorted(maps.Keys(i.chosen))
	if named := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !*i.chosen[name] }); len(named) > 0 {
		return named
	}
	return all
}

func (a *app) imageBuild() *cobra.Command {
	c := &cobra.Command{Use: "build APPLICATION.YAML", Short: "Build an application's images that have changed", Args: args(cobra.ExactArgs(1))}
	return a.imageVerb(c, func(ctx context.Context, i *images, s image.Store, given []string) error {
		application, err := image.Load(given[0])
		if err != nil {
			return err
		}
		var list []image.Image
		var errs []error
		for _, substrate := range i.substrates() {
			begun := time.Now()
			fmt.Fprintf(i.stderr, "%s: %s ...\n", application.Name, substrate)
			built, err := s.Build(ctx, application, substrate)
			switch {
			case err == nil:
				fmt.Fprintf(i.stderr, "%s: %s: %s after %s\n", application.Name, substrate, mebibytes(built.Size), time.Since(begun).Round(100*time.Millisecond))
				list = append(list, built)
			case vitrine.IsUnsupported(err) && ctx.Err() == nil: // the other images can still be built
				fmt.Fprintf(i.stderr, "%s: %s: %v\n", application.Name, substrate, err)
				errs = append(errs, err)
			default:
				return err
			}
		}
		return errors.Join(append(errs, i.print(list))...)
	})
}

func (a *app) imageList() *cobra.Command {
	c := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List images, with the digests of program and configuration", Args: args(cobra.NoArgs)}
	return a.imageVerb(c, func(_ context.Context, i *images, s image.Store, _ []string) error {
		list, err := s.List()
		if err != nil {
			return err
		}
		return i.print(i.wanted(list))
	})
}

// wanted returns the images of the substrates that flags name.
func (i *images) wanted(list []image.Image) []image.Image {
	names := i.substrates()
	return slices.DeleteFunc(list, func(i image.Image) bool { return !slices.Contains(names, i.Substrate) })
}

func (i *images) print(list []image.Image) error {
	if i.json {
		return json.NewEncoder(i.stdout).Encode(append([]image.Image{}, list...)) // [], not null
	}
	w := tabwriter.NewWriter(i.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSUBSTRATE\tSIZE\tPROGRAM\tCONFIGURATION\tFILE")
	for _, i := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.12s\t%.12s\t%s\n", i.Name, i.Substrate, mebibytes(i.Size), i.Program, i.Configuration, i.File)
	}
	return w.Flush()
}

func (a *app) imageSize() *cobra.Command {
	c := &cobra.Command{Use: "size NAME", Short: "Compare the sizes of an application's images", Args: args(cobra.ExactArgs(1))}
	return a.imageVerb(c, func(_ context.Context, i *images, s image.Store, given []string) error {
		list, err := s.Of(given[0])
		if err != nil {
			return err
		}
		list = i.wanted(list)
		if i.json {
			return i.print(list)
		}
		w := tabwriter.NewWriter(i.stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "SUBSTRATE\tON DISK\tAPPLICATION\tBESIDE IT\t")
		for _, i := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", i.Substrate, mebibytes(i.Size), mebibytes(i.Files), mebibytes(max(0, i.Size-i.Files)))
		}
		return w.Flush()
	})
}

func (a *app) imageRemove() *cobra.Command {
	c := &cobra.Command{Use: "rm NAME...", Aliases: []string{"remove"}, Short: "Remove applications' images", Args: args(cobra.MinimumNArgs(1))}
	return a.imageVerb(c, func(ctx context.Context, i *images, s image.Store, given []string) error {
		removed := []image.Image{}
		for _, name := range given {
			var missing error
			before := len(removed)
			for _, substrate := range i.substrates() {
				built, err := s.Find(name, substrate)
				if err != nil {
					built = image.Image{Name: name, Substrate: substrate} // a damaged image can be removed, too
				}
				err = s.Remove(ctx, name, substrate)
				if vitrine.IsBadInput(err) {
					missing = err
					continue
				}
				if err != nil {
					return err
				}
				removed = append(removed, built)
				if !i.json {
					fmt.Fprintf(i.stdout, "removed %s for %s\n", name, substrate)
				}
			}
			if len(removed) == before {
				return missing
			}
		}
		if i.json {
			return i.print(removed)
		}
		return nil
	})
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// notes is a log handler that prints messages for a person, as progress of work
// that takes minutes.
type notes struct{ out io.Writer }

func (n *notes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (n *notes) Handle(_ context.Context, r slog.Record) error {
	text := "  " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf("; %s: %v", a.Key, a.Value)
		return true
	})
	_, err := fmt.Fprintln(n.out, text)
	return err
}

func (n *notes) WithAttrs([]slog.Attr) slog.Handler { return n }
func (n *notes) WithGroup(string) slog.Handler      { return n }
