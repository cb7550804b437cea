package gtp

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims"
)

// A Node has the command-line flags that all gateways share.
type Node struct {
	Prefix   Prefix
	Sessions int // most sessions

	listen  netip.AddrPort
	queues  *Queues // instead of UDP; nil: UDP
	name    string  // label of the counters; empty: the node is alone in its process
	address string
	restart int
	t3      time.Duration
	n3      int
}

// InProcess returns a node whose peers are in the same process. Only they use its
// address.
func InProcess(q *Queues, name string, address netip.Addr) Node {
	return Node{
		Prefix: Prefix{Type: 1}, Sessions: sessions, listen: netip.AddrPortFrom(address, Port), queues: q, name: name,
		restart: -1, t3: t3, n3: n3,
	}
}

// The defaults of the flags, and of a Config.
const (
	sessions = 1 << 20 // as many as the UEs of generator s1ap
	t3       = 3 * time.Second
	n3       = 3
)

// Addr returns the address to listen on.
func (n *Node) Addr() netip.AddrPort { return n.listen }

// Flags declares the flags.
func (n *Node) Flags(c *ims.Command) {
	c.Own(&n.listen, "listen", "address for GTP-C, UDP: IP:2123")
	c.StringVar(&n.address, "advertise", "", "IP address in F-TEIDs, such as a director's; that of --listen if empty")
	c.Uint8Var(&n.Prefix.Instance, "instance", 0, "number of this instance in its TEIDs, 1 to 127, for a director; 0: none")
	c.Uint8Var(&n.Prefix.Type, "type", 1, "number of the instance's type in its TEIDs, 1 to 7, as in the director's configuration")
	c.IntVar(&n.restart, "restart-counter", -1, "restart counter, 0 to 255; -1: from the clock, which gives the last counter again at about one restart in 256")
	c.IntVar(&n.Sessions, "sessions", sessions, "largest number of sessions")
	c.DurationVar(&n.t3, "t3", t3, "time after which a request is sent again (T3-RESPONSE)")
	c.IntVar(&n.n3, "n3", n3, "how often a request is sent (N3-REQUESTS)")
	c.Positive("sessions", "t3", "n3")
}

// CheckPrefix checks the flags of the prefix.
func (n *Node) CheckPrefix(c *ims.Command) error {
	if n.Prefix.Instance > maxInstance {
		return c.Bad(fmt.Sprintf("--instance %d", n.Prefix.Instance), fmt.Sprintf("want 0 to %d", maxInstance))
	}
	if n.Prefix.Type < 1 || n.Prefix.Type > maxType {
		return c.Bad(fmt.Sprintf("--type %d", n.Prefix.Type), fmt.Sprintf("want 1 to %d", maxType))
	}
	return nil
}

// KeepsState makes the restart counter stay the same at each start, because the node's
// sessions outlive its process (TS 23.007 clause 18). A flag can still set the counter.
func (n *Node) KeepsState() { n.restart = max(n.restart, 0) }

// Listen opens the endpoint that the flags describe.
func (n *Node) Listen(ctx context.Context, c *ims.Command, handle func(context.Context, *Request), restarted func(context.Context, netip.Addr)) (*Endpoint, error) {
	config := Config{
		Listen: n.listen, Restart: uint8(n.restart), T3: n.t3, N3: n.n3,
		Handle: handle, Restarted: restarted, Registry: c.Registry, Queues: n.queues, Messages: c.Messages,
	}
	if n.name != "" {
		config.Registry = prometheus.WrapRegistererWith(prometheus.Labels{"node": n.name}, c.Registry)
	}
	if err := n.CheckPrefix(c); err != nil {
		return nil, err
	}
	switch {
	case n.restart < -1 || n.restart > 255:
		return nil, c.Bad(fmt.Sprintf("--restart-counter %d", n.restart), "want -1 to 255")
	case n.restart == -1: // the clock's seconds, modulo 256
		config.Restart = uint8(time.Now().Unix())
	}
	if n.address != "" {
		var err error
		if config.Address, err = netip.ParseAddr(n.address); err != nil {
			return nil, c.Bad(fmt.Sprintf("--advertise %q", n.address), "want an IP address")
		}
	}
	endpoint, err := Listen(ctx, config)
	if err != nil {
		return nil, ims.ListenError("listen", n.listen, err)
	}
	return endpoint, nil
}
