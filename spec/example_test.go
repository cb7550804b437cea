package spec_test

import (
	"fmt"

	"vitrine/spec"
)

// The options of back ends are checked by Known. A program without back ends
// leaves the part servers out of its deployments.
func ExampleParseDeployment() {
	const file = `
vnf_name: web
components:
  - {name: front, short: fr, command: [front, --listen, "${ADDRESS}:80"], ports: {http: 80}, entry: http}
  - {name: back, short: ba, command: [back]}
flavors:
  - {name: small, vcpus: 0.5, memory: 256MiB}
  - {name: large, vcpus: 2, memory: 1GiB}
mode: {name: custom, sizes: [fr1s-ba1s, fr1l-ba2s]}
`
	deployment, err := spec.ParseDeployment("web.yaml", []byte(file), spec.Known{Substrates: map[string]any{"process": nil}, Fabrics: map[string]any{"auto": nil}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, sizing := range deployment.Sizings() {
		given := deployment.Resources(sizing)
		fmt.Printf("%s: %g vCPUs, %d MiB\n", sizing, given.VCPUs, given.Memory>>20)
	}
	// Output:
	// fr1s-ba1s: 1 vCPUs, 512 MiB
	// fr1l-ba2s: 3 vCPUs, 1536 MiB
}
