package docker

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/internal/netns"
	"vitrine/substrate"
)

// MinMemory is the smallest memory limit that the engine accepts, in bytes.
const MinMemory = 6 << 20

// limits returns the instance's limits in the engine's format. A memory limit that no engine can
// enforce is a *vitrine.BadInput. A limit that the kernel or this engine cannot enforce is a
// *vitrine.Unsupported. The engine itself would only warn and run without the limit.
func (s *Substrate) limits(spec substrate.Spec) (container.Resources, error) {
	var r container.Resources
	lacks := func(what string) (container.Resources, error) {
		return r, &vitrine.Unsupported{What: "docker: " + what, Missing: fmt.Sprintf("the engine at %s finds no kernel support for it", s.host),
			Do: "see the warnings of docker info; enable the cgroup controller"}
	}
	if spec.VCPUs > 0 {
		limit := cgroup.Limits{VCPUs: spec.VCPUs, Period: cmp.Or(spec.CFSPeriod, substrate.DefaultCFSPeriod)}
		quota, err := limit.Quota()
		if err != nil {
			return r, err
		}
		if !s.info.CPUCfsQuota || !s.info.CPUCfsPeriod {
			return lacks("CPU quotas")
		}
		r.CPUPeriod, r.CPUQuota = limit.Period.Microseconds(), quota.Microseconds()
	}
	if spec.Memory > 0 {
		if spec.Memory < MinMemory {
			return r, &vitrine.BadInput{File: "instance " + spec.Name, Found: fmt.Sprintf("%d bytes of memory", spec.Memory), Want: "at least 6MiB, the engine's minimum"}
		}
		if !s.info.MemoryLimit {
			return lacks("memory limits")
		}
		r.Memory = spec.Memory
		if s.info.SwapLimit {
			r.MemorySwap = spec.Memory // memory plus swap, so no swap
		}
	}
	if len(spec.CPUs) > 0 {
		if !s.info.CPUSet {
			return lacks("binding to CPUs")
		}
		r.CpusetCpus = cgroup.CPUList(spec.CPUs)
	}
	return r, nil
}

// resolve checks the mounts and makes their sources absolute.
func (c Config) resolve() (Config, error) {
	mounts := make([]Mount, len(c.Mounts))
	for i, m := range c.Mounts {
		if m.Source == "" || !filepath.IsAbs(m.Target) {
			return c, &vitrine.BadInput{File: "docker", Found: fmt.Sprintf("the mount %q -> %q", m.Source, m.Target),
				Want: "a source on this host and an absolute target"}
		}
		if !filepath.IsAbs(m.Source) {
			m.Source = filepath.Join(c.Folder, m.Source)
		}
		source, err := filepath.Abs(m.Source)
		if err != nil {
			return c, fmt.Errorf("docker: the mount of %s: %w", m.Source, err)
		}
		m.Source = source
		mounts[i] = m
	}
	c.Mounts = mounts
	return c, nil
}

// namespaces reports whether instances get network namespaces.
func (c Config) namespaces() (bool, error) {
	switch c.Network {
	case "", "auto":
		err := netns.Possible()
		if err != nil && !vitrine.IsUnsupported(err) {
			return false, err
		}
		return err == nil, nil
	case "namespace":
		return true, nil
	case "host":
		return false, nil
	}
	return false, &vitrine.BadInput{File: "docker", Found: fmt.Sprintf("network %q", c.Network), Want: "auto, namespace or host"}
}

// mounts returns the configured mounts, the instance's own folder under its host
// path, and its /etc/hosts. The file is also mounted over itself in the folder, because a container
// cannot replace a mount point. If it could put a link there, the engine would mount the link's target.
func (s *Substrate) mounts(spec substrate.Spec) []mount.Mount {
	hosts := filepath.Join(spec.Dir, hostsFile)
	all := []mount.Mount{
		{Type: mount.TypeBind, Source: spec.Dir, Target: spec.Dir},
		{Type: mount.TypeBind, Source: hosts, Target: hosts, ReadOnly: true},
		{Type: mount.TypeBind, Source: hosts, Target: "/etc/hosts", ReadOnly: true},
	}
	for _, m := range s.config.Mounts {
		all = append(all, mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: !m.Writable})
	}
	return all
}
