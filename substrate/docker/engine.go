package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"vitrine"
)

// callLimit bounds one call of the engine's API. Calls that wait for an event (such as a
// container's end) or move whole images are bounded by their context alone.
const callLimit = time.Minute

// dialLimit bounds the time to connect to the engine.
const dialLimit = 5 * time.Second

// errNoAnswer is the cause of a call that callLimit ended.
var errNoAnswer = errors.New("no answer")

// An engine is a connection to the Docker Engine.
type engine struct {
	api   *client.Client
	host  string // unix:///var/run/docker.sock
	limit time.Duration
	info  system.Info
	name  string // Docker Engine, or Podman Engine
}

// dialEngine connects to the engine at host and negotiates the highest API version that both
// support. If the engine does not run or refuses this user, the error is a *vitrine.Unsupported.
func dialEngine(ctx context.Context, host string) (*engine, error) {
	if host == "" {
		host = client.DefaultDockerHost
	}
	address, err := client.ParseHostURL(host)
	if err != nil {
		return nil, &vitrine.BadInput{File: "docker", Found: fmt.Sprintf("host %q", host), Want: "an address such as " + client.DefaultDockerHost}
	}
	dialer := net.Dialer{Timeout: dialLimit}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, address.Scheme, address.Host)
		if guard, ok := ctx.Value(dialGuard{}).(*func() bool); ok && err == nil {
			*guard = context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}
	conn, err := dial(ctx, "", "")
	if err != nil {
		return nil, unreachable(host, address.Host, err)
	}
	conn.Close()
	api, err := client.NewClientWithOpts(client.WithHost(host), client.WithDialContext(dial), client.WithAPIVersionNegotiation(),
		client.WithUserAgent("vitrine"))
	if err != nil {
		return nil, fmt.Errorf("docker: connect to %s: %w", host, err)
	}
	e := &engine{api: api, host: host, limit: callLimit}
	version, err := call(ctx, e, "query the engine's version", api.ServerVersion)
	e.name = nameOfEngine(version)
	if err == nil {
		e.info, err = call(ctx, e, "query the engine", api.Info)
	}
	if err == nil && e.info.OSType != "linux" {
		err = &vitrine.Unsupported{What: "docker", Missing: fmt.Sprintf("an engine that runs Linux containers: %s runs %s containers", host, e.info.OSType)}
	}
	if err != nil {
		api.Close()
		return nil, err
	}
	return e, nil
}

// podman begins the name of Podman's engine.
const podman = "Podman"

// nameOfEngine returns the name of an engine. Podman answers the same API, and names itself among
// the components of its version.
func nameOfEngine(v types.Version) string {
	for _, c := range v.Components {
		if strings.HasPrefix(c.Name, podman) {
			return c.Name
		}
	}
	return "Docker Engine"
}

// checkHostNetwork returns a *vitrine.Unsupported if the engine's host network is not this host's.
// That of the rootless Docker Engine is a network namespace of RootlessKit; that of rootless Podman
// is the host's.
func (e *engine) checkHostNetwork() error {
	if strings.HasPrefix(e.name, podman) || !slices.Contains(e.info.SecurityOptions, "name=rootless") {
		return nil
	}
	return &vitrine.Unsupported{What: "docker: instances in the host's network",
		Missing: "an engine of root: the host network of the rootless engine at " + e.host + " is a network namespace of its own",
		Do:      "run as root with an engine of root (DOCKER_HOST), or use Podman"}
}

// unreachable explains why no engine answers at the socket, and what to do about it.
func unreachable(host, socket string, err error) error {
	u := &vitrine.Unsupported{What: "docker"}
	switch {
	case errors.Is(err, os.ErrPermission):
		u.Missing = "permission to use the engine's socket " + socket
		u.Do = "add yourself to the group docker and log in again, or run as root"
	case errors.Is(err, os.ErrNotExist):
		u.Missing = "a running engine: there is no socket " + socket
		u.Do = "install Docker (Debian: docker.io) and start it (systemctl start docker), or name its socket in DOCKER_HOST"
	case errors.Is(err, syscall.ECONNREFUSED):
		u.Missing = "a running engine: nothing listens on " + socket
		u.Do = "start it (systemctl start docker)"
	default:
		return fmt.Errorf("docker: connect to %s: %w", host, err)
	}
	return &noEngine{Unsupported: u, cause: err}
}

// noEngine is a *vitrine.Unsupported that keeps the error of the connection.
type noEngine struct {
	*vitrine.Unsupported
	cause error
}

func (e *noEngine) Unwrap() []error { return []error{e.Unsupported, e.cause} }

// call makes one bounded call of the engine's API; what names the action in errors.
func call[T any](ctx context.Context, e *engine, what string, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.limit, errNoAnswer)
	defer cancel()
	v, err := f(ctx)
	return v, e.explain(ctx, what, err)
}

// do is like call, for a function that returns only an error.
func (e *engine) do(ctx context.Context, what string, f func(context.Context) error) error {
	_, err := call(ctx, e, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// explain turns an API error into one that tells the user what to do. It keeps the kind of
// the error (cerrdefs.IsNotFound and so on).
func (e *engine) explain(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return fmt.Errorf("docker: %s: the engine at %s has not answered for %v: restart it", what, e.host, e.limit)
	case ctx.Err() != nil:
		return fmt.Errorf("docker: %s: %w", what, context.Cause(ctx))
	case isLost(err):
		return fmt.Errorf("docker: %s: lost the engine at %s: see its log (journalctl -u docker), start it again, then `vitrine clean`: %w", what, e.host, err)
	}
	return fmt.Errorf("docker: %s: %w", what, err)
}

// isLost reports whether the connection failed, as opposed to the request.
func isLost(err error) bool {
	var network *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, http.ErrServerClosed)
}

// isGone reports whether the container to end or remove has already ended or gone.
func isGone(err error) bool {
	return cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "is not running")
}

// dialGuard is the context key with which hijack has a connection closed when its call is
// cancelled. The SDK ignores the context while it waits on a hijacked connection.
type dialGuard struct{}

// hijack makes a call that turns its connection into a raw stream. The stream may outlive ctx.
func (e *engine) hijack(ctx context.Context, what string, f func(context.Context) (types.HijackedResponse, error)) (types.HijackedResponse, error) {
	return call(ctx, e, what, func(ctx context.Context) (types.HijackedResponse, error) {
		stop := func() bool { return true }
		stream, err := f(context.WithValue(ctx, dialGuard{}, &stop))
		if !stop() && err == nil {
			stream.Close()
			err = ctx.Err()
		}
		return stream, err
	})
}
