package trial

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"vitrine"
	"vitrine/internal/netns"
)

// A pause between probes is a fraction of the time waited so far, so that the
// wait is too long by that fraction at most, whether an instance takes
// milliseconds or minutes.
const (
	probeShare = 20                     // the fraction is 1/20,
	probeLeast = time.Millisecond       // but no less than this
	probeMost  = 100 * time.Millisecond // and no more than this
	probeLimit = time.Second            // of one probe
)

// waitReady probes the instance from where the generator is until it answers,
// its process ends or the component's time limit passes.
func (d *deployment) waitReady(ctx context.Context, in *instance) error {
	r := in.component.Ready
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	p := prober{deployment: d, in: in}
	defer p.close()
	for began := time.Now(); ; {
		last := p.probe(ctx)
		if last == nil {
			return nil
		}
		pause := min(max(time.Since(began)/probeShare, probeLeast), probeMost)
		select {
		case <-in.process.Done():
			return fmt.Errorf("%s ended before it was ready: %w", in.name, in.ended())
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return fmt.Errorf("%s was not ready within %s: %w; its log ends:\n%s", in.name, r.Timeout, last, in.logTail())
		case <-time.After(pause):
		}
	}
}

// A prober asks one instance whether it is ready.
type prober struct {
	*deployment
	in  *instance
	sip net.Conn // kept: see probeSIP
}

func (p *prober) close() {
	if p.sip != nil {
		p.sip.Close()
	}
}

// probe asks once.
func (p *prober) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	in, c, r := p.in, p.in.component, p.in.component.Ready
	if len(r.Command) > 0 {
		return in.place.Run(ctx, vitrine.Command{Args: p.expand(in, r.Command), Env: in.env})
	}
	return netns.Do(p.site.gen.place.NetNS(), func() error {
		switch {
		case r.TCP != "":
			return probeTCP(ctx, in.at(c, r.TCP))
		case r.SIP != "":
			return p.probeSIP(ctx, in.at(c, r.SIP))
		case r.HTTP != nil:
			return probeHTTP(ctx, in.at(c, r.HTTP.Port), r.HTTP.Path)
		}
		return nil
	})
}

func probeTCP(ctx context.Context, at netip.AddrPort) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// probeSIP sends OPTIONS (RFC 3261 section 11); any answer will do, also a late
// one to an earlier probe. That no answer comes must not be waited for: hosts
// that have nobody at the port say so only about once a second (ICMP is
// limited, see icmp(7)).
func (p *prober) probeSIP(ctx context.Context, at netip.AddrPort) error {
	if p.sip == nil {
		var d net.Dialer
		var err error
		if p.sip, err = d.DialContext(ctx, "udp", at.String()); err != nil {
			return err
		}
	}
	self := p.sip.LocalAddr().String()
	tag := fmt.Sprintf("%x", time.Now().UnixNano())
	request := strings.Join([]string{
		"OPTIONS sip:" + at.String() + " SIP/2.0",
		"Via: SIP/2.0/UDP " + self + ";rport;branch=z9hG4bK" + tag,
		"Max-Forwards: 70",
		"From: <sip:vitrine@" + self + ">;tag=" + tag,
		"To: <sip:" + at.String() + ">",
		"Call-ID: ready-" + tag,
		"CSeq: 1 OPTIONS",
		"Contact: <sip:vitrine@" + self + ">",
		"Content-Length: 0", "", "",
	}, "\r\n")
	if _, err := p.sip.Write([]byte(request)); err != nil {
		return err
	}
	if err := p.sip.SetReadDeadline(time.Now().Add(probeLeast)); err != nil {
		return err
	}
	answer := make([]byte, 2048)
	n, err := p.sip.Read(answer)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(answer[:n]), "SIP/2.0 ") {
		return fmt.Errorf("%s answered OPTIONS with something that is not SIP", at)
	}
	return nil
}

// probeHTTP speaks over a connection of its own: net/http would dial from
// another thread, and so from another network namespace.
func probeHTTP(ctx context.Context, at netip.AddrPort, path string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+path, nil)
	if err != nil {
		return err
	}
	request.Close = true
	if err := request.Write(conn); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return fmt.Errorf("GET %s: %s", request.URL, response.Status)
	}
	return nil
}
