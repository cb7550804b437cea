package docker

import (
	"context"
	"fmt"
	"strings"

	"vitrine"
	"vitrine/internal/netns"
)

// Version returns the name and the version of the configured engine, and the version of the API used
// with it.
func Version(ctx context.Context, config Config) (string, error) {
	e, err := dialEngine(ctx, config.Host)
	if err != nil {
		return "", err
	}
	return e.version(), e.api.Close()
}

func (e *engine) version() string {
	return fmt.Sprintf("%s, version %s, API %s, %s", e.name, e.info.ServerVersion, e.api.ClientVersion(), e.host)
}

// Check reports what this engine can do.
func (s *Substrate) Check(context.Context) []vitrine.Check {
	i := s.info
	check := func(name string, ok bool, detail, missing string) vitrine.Check {
		c := vitrine.Check{Name: "docker: " + name, OK: ok, Detail: detail}
		if !ok {
			c.Missing = missing
		}
		return c
	}
	cgroups := fmt.Sprintf("cgroup v%s, driver %s", i.CgroupVersion, i.CgroupDriver)
	controller := "the engine finds no kernel support for it: see the warnings of docker info"
	swap := "without swap"
	if !i.SwapLimit {
		swap = "swap is not limited"
	}
	return []vitrine.Check{
		check("engine", true, s.version(), ""),
		check("storage", true, "driver "+i.Driver, ""),
		check("runtimes", true, fmt.Sprintf("%s; default %s", strings.Join(s.runtimes(), " "), i.DefaultRuntime), ""),
		check("CPU quotas", i.CPUCfsQuota && i.CPUCfsPeriod, cgroups, controller),
		check("binding to CPUs", i.CPUSet, cgroups, controller),
		check("memory limits", i.MemoryLimit, cgroups+", "+swap, controller),
		vitrine.NewCheck("docker: network namespaces", "fabrics can wire containers", netns.Possible()),
	}
}
