package burst

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"text/template"
)

// addresses are those of the services, on loopback.
type addresses struct{ sip, control, store, homestead, homer, flex string }

// freeAddresses returns addresses that nothing uses now.
func freeAddresses(ctx context.Context) (a addresses, err error) {
	var config net.ListenConfig
	c, err := config.ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return a, err
	}
	a.sip = c.LocalAddr().String()
	open := []interface{ Close() error }{c}
	for _, at := range []*string{&a.control, &a.store, &a.homestead, &a.homer, &a.flex} {
		l, failed := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err = failed; err != nil {
			break
		}
		*at = l.Addr().String()
		open = append(open, l)
	}
	for _, o := range open {
		err = errors.Join(err, o.Close())
	}
	return a, err
}

// The files of a day. Homestead, Homer and the store are shared by all aggregates, as in
// Contain-ed's figure 6.
const (
	directorFile = `listen: {sip: ["udp://{{.SIP}}"], control: "{{.Control}}"}
transition: 2s
types: [{name: registration, protocol: sip}]
rules: [{type: registration}]
`
	deploymentFile = `vnf_name: contain-ed-burst
components:
  - name: bono
    short: bn
    command: [vitrine, reference, bono, --listen, "${ADDRESS}:5060", --sprout, "${SPROUT}"]
    environment: {GOMAXPROCS: "1"}
    ports: {sip: 5060}
    entry: sip
    dependencies:
      - {component: sprout, as: SPROUT, port: sip}
    ready: {sip: sip}
  - name: sprout
    short: sp
    command: [vitrine, reference, sprout, --listen, "${ADDRESS}:5054", --homestead, "{{.Homestead}}", --homer, "{{.Homer}}", --store, "http://{{.Store}}"]
    environment: {GOMAXPROCS: "1"}
    ports: {sip: 5054}
    ready: {sip: sip}
flavors:
  - {name: small, vcpus: {{.VCPUs}}, memory: 128MiB}
mode: {name: custom, sizes: [bn1s-sp1s]}
`
	flexFile = `directors: [{control: "{{.Control}}"}]
store: {url: "http://{{.Store}}"}
control: {listen: "{{.Flex}}"}
services:
  - {name: store, command: [vitrine, store, run, --listen, "{{.Store}}", --dir, "${VITRINE_DIR}/records"], ready: "{{.Store}}"}
  - {name: homestead, command: [vitrine, reference, homestead, --listen, "{{.Homestead}}"], ready: "{{.Homestead}}"}
  - {name: homer, command: [vitrine, reference, homer, --listen, "{{.Homer}}"], ready: "{{.Homer}}"}
  - {name: director, command: [vitrine, director, run, director.yaml], ready: "{{.Control}}"}
types:
  - name: registration
    deployment: deployment.yaml
    flavors: [{size: bn1s-sp1s, rate: {{.Rate}}}]
    max: {{.Max}}
    objective: {p99: {{.Bound}}, success: {{.Success}}}
    boot: 3s
servers: {substrate: process, fabric: loopback}
`
)

// writeFiles writes the files and returns the path of the orchestrator's.
func (d *day) writeFiles() (string, error) {
	values := map[string]any{
		"SIP": d.sip, "Control": d.control, "Store": d.store, "Homestead": d.homestead, "Homer": d.homer, "Flex": d.flex,
		"VCPUs": VCPUs, "Rate": Capacity, "Max": d.Max, "Bound": Bound, "Success": Success,
	}
	for name, text := range map[string]string{"director.yaml": directorFile, "deployment.yaml": deploymentFile, "flex.yaml": flexFile} {
		t, err := template.New(name).Parse(text)
		if err != nil {
			return "", err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, values); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(d.Folder, name), b.Bytes(), 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(d.Folder, "flex.yaml"), nil
}
