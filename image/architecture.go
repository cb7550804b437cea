package image

import "vitrine"

// NeedAMD64 returns a *vitrine.Unsupported unless arch, an architecture's name in Go, is amd64: virtual
// machines and unikernels boot amd64 kernels. what is what the host cannot do otherwise.
func NeedAMD64(arch, what string) error {
	if arch == "amd64" {
		return nil
	}
	return &vitrine.Unsupported{What: what, Missing: "an amd64 host (this one is " + arch + ")", Do: "use the substrate process or docker"}
}
