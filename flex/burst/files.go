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

// addresses are the loopback addresses of the services.
type addresses struct{ sip, control, store, homestead, homer, flex string }

// freeAddresses returns unused addresses. Another process may take one before the services do.
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

// Templates of the files of a System. All aggregates share Homestead, Homer and the store, as
// in figure 6 of Contain-ed.
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
    command: [vitrine, reference, bono, --listen, "${ADDRESS}:5060", --sprout, "${SPROUT}"{{if .Overload}}, --overload, "{{.Overload}}"{{end}}]
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
servers: {substrate: process, fabric: loopback}
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

// writeFiles writes the files of the system into its folder.
func (s *System) writeFiles() error {
	values := map[string]any{
		"SIP": s.sip, "Control": s.control, "Store": s.store, "Homestead": s.homestead, "Homer": s.homer, "Flex": s.flex,
		"VCPUs": s.VCPUs, "Rate": s.Rate, "Max": s.Max, "Bound": Bound, "Success": Success, "Overload": s.Overload,
	}
	for path, text := range map[string]string{filepath.Join(s.Folder, "director.yaml"): directorFile, s.Deployment(): deploymentFile, s.file(): flexFile} {
		t, err := template.New(filepath.Base(path)).Parse(text)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, values); err != nil {
			return err
		}
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *System) file() string { return filepath.Join(s.Folder, "flex.yaml") }

// Deployment returns the path of the deployment file of the instances.
func (s *System) Deployment() string { return filepath.Join(s.Folder, "deployment.yaml") }
