package measure

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"vitrine/testbed"
)

// A Platform holds the facts about the host that RFC 8172 (section 3.2) and
// draft-ietf-bmwg-containerized-infra require and that other manifests lack.
type Platform struct {
	SenderNode   string `json:"sender_numa_node"`            // of the sender's CPU; "not known: why"
	ReceiverNode string `json:"receiver_numa_node"`          // of the receiver's CPU; of a chain, of the hops' CPUs
	KernelNode   string `json:"kernel_numa_node,omitempty"`  // of the CPU of the kernel's receive work; empty: the work is not steered
	Hugepages    string `json:"hugepages"`                   // reserved and free, and their size
	THP          string `json:"transparent_hugepages"`       // the active mode
	ReceiveCPU   string `json:"kernel_receive_cpu"`          // where the kernel's receive work runs
	Emulator     string `json:"link_emulator_cpu,omitempty"` // where the emulator of impaired links runs; empty: no link is impaired
	// NetworkingModels has each fabric's model in the terms of draft-ietf-bmwg-containerized-infra.
	NetworkingModels map[string]string `json:"networking_models,omitempty"`
}

// ReadPlatform reads the platform from the proc and sys folders below root, which is
// "/" except in tests. models are the networking models of the measured fabrics.
func ReadPlatform(root string, cpus testbed.CPUs, kernel KernelCPU, models map[string]string) Platform {
	sender, receiver := cpus.Generator[0], cpus.Function[0]
	p := Platform{
		SenderNode: numaNode(root, sender), ReceiverNode: numaNode(root, receiver), Hugepages: hugepages(root), THP: "not known",
		ReceiveCPU: kernel.String(), NetworkingModels: models,
	}
	if kernel.On {
		p.KernelNode = numaNode(root, kernel.CPU)
	}
	if text, err := os.ReadFile(filepath.Join(root, "sys/kernel/mm/transparent_hugepage/enabled")); err == nil {
		if _, rest, ok := strings.Cut(string(text), "["); ok {
			p.THP, _, _ = strings.Cut(rest, "]")
		}
	}
	return p
}

// NUMANodes returns the nodes of the CPUs, each once.
func NUMANodes(root string, cpus []int) string {
	var nodes []string
	for _, cpu := range cpus {
		if node := numaNode(root, cpu); !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return strings.Join(nodes, ", ")
}

func numaNode(root string, cpu int) string {
	nodes, err := filepath.Glob(filepath.Join(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/node[0-9]*", cpu)))
	if err != nil || len(nodes) == 0 {
		return "not known: the kernel shows none"
	}
	return strings.TrimPrefix(filepath.Base(nodes[0]), "node")
}

func hugepages(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return "not known: " + err.Error()
	}
	values := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			values[name] = strings.TrimSpace(value)
		}
	}
	if values["HugePages_Total"] == "" {
		return "not known: /proc/meminfo has no HugePages_Total"
	}
	return fmt.Sprintf("%s reserved, %s free, of %s", values["HugePages_Total"], values["HugePages_Free"], values["Hugepagesize"])
}

// NetworkingModel returns the networking model of a fabric.
func (p *Platform) NetworkingModel(fabric string) string {
	return cmp.Or(p.NetworkingModels[fabric], "not known")
}
