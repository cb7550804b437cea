package s1ap

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
	oneprocess "vitrine/reference/epc"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/pcrf"
)

// TestOneProcessCountsAsSeparateOnes plays the same calls against two EPCs: one has its MME, S-GW and
// P-GW in separate processes, the other has them in one process. Both must count the same
// procedures.
func TestOneProcessCountsAsSeparateOnes(t *testing.T) {
	t.Parallel()
	apart := startEPC(t, 9, 1)
	one := newEPC(t, 10)
	one.start("hss", hss.Run, "--listen", one.at(41, 3868))
	one.start("pcrf", pcrf.Run, "--listen", one.at(31, 3868))
	one.start("epc", oneprocess.Run, "--s1", one.at(1, 36412), "--hss", one.at(41, 3868), "--pcrf", one.at(31, 3868),
		"--metrics", one.at(1, 9090), "--instance", "1", "--ciphering", "eea2", "--workers", "2", "--overload", "off")
	one.connected(1)
	hosttest.Until(t, patience, "the P-GW is connected to the PCRF", func() bool { return one.metric(1, "gx_connected") == 1 })
	for name, e := range map[string]*epc{"apart": apart, "one process": one} {
		stay := e.play(20, 1, 0, 1, map[string]string{"scenario": Attach, "timeout": patience.String(), "subscribers": "001010000020001"}).Offered
		leave := e.play(20, 2, 0, 1, map[string]string{"scenario": AttachDetach, "timeout": patience.String()}).Offered
		for _, c := range []struct {
			host   int // host of the separate component
			name   string
			labels []string
			want   int64
		}{
			{1, "mme_procedures_total", []string{`procedure="attach"`, `outcome="success"`}, stay + leave},
			{1, "mme_procedures_total", []string{`procedure="detach"`, `outcome="success"`}, leave},
			{11, "sgw_procedures_total", []string{`procedure="create-session"`, `cause="16"`}, stay + leave},
			{11, "sgw_procedures_total", []string{`procedure="modify-bearer"`, `cause="16"`}, stay + leave},
			{11, "sgw_procedures_total", []string{`procedure="delete-session"`, `cause="16"`}, leave},
			{21, "pgw_procedures_total", []string{`procedure="create-session"`, `cause="16"`}, stay + leave},
			{21, "pgw_procedures_total", []string{`procedure="delete-session"`, `cause="16"`}, leave},
			{11, "sgw_ues", nil, stay},
			{21, "pgw_sessions", nil, stay},
		} {
			if e == one {
				c.host = 1
			}
			hosttest.Until(t, patience, fmt.Sprintf("%s: %s %v is %d", name, c.name, c.labels, c.want), func() bool {
				return int64(e.metric(c.host, c.name, c.labels...)) == c.want
			})
		}
	}
	if one.metric(1, "gtpc_unsent_total") > 0 {
		t.Error("a GTP-C queue dropped a message")
	}
}

// TestOneProcessHasNoStore asks an EPC in one process for a store. Its S-GW and P-GW end with its MME,
// so the UE contexts must not outlive them.
func TestOneProcessHasNoStore(t *testing.T) {
	t.Parallel()
	args := []string{"--s1", "127.0.0.1:0", "--hss", "127.0.0.1:1", "--store", "http://127.0.0.1:1"}
	if err := oneprocess.Run(t.Context(), args, io.Discard, io.Discard); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "--store") {
		t.Errorf("got %v, want a bad input about --store", err)
	}
}
