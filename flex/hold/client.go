package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"vitrine"
	"vitrine/flex/unit"
	"vitrine/internal/access"
	"vitrine/internal/runstate"
)

// A Client controls a holder. It is safe for concurrent use.
type Client struct {
	About  About
	root   string // folder of runs that has the holder's run
	caller access.Caller
}

// callTimeout bounds each call.
const callTimeout = 10 * time.Second

// ErrNone says that a state folder has no live holder.
var ErrNone = errors.New("nothing runs")

// Find connects to the holder of a state folder. It returns ErrNone if no holder is alive, and
// another error if the holder is alive but does not answer or has lost its run's folder, or if others
// may write to the state folder. For a holder of another Version it returns a *vitrine.BadInput and a
// Client, whose End works.
func Find(ctx context.Context, folder string) (*Client, error) {
	if err := runstate.PrivateFolder(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the state folder: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(folder, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	var r Record
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the holder: %w", err)
	}
	if !runstate.Alive(r.Root, r.Run) {
		if runstate.IsLockedBy(filepath.Join(folder, LockFile), r.PID) {
			return nil, fmt.Errorf("run %s, pid %d, holds the instances, but its folder %s is gone, as after the user's last session: "+
				"end them by kill %d, and run loginctl enable-linger before the next start", r.Run, r.PID, filepath.Join(r.Root, r.Run), r.PID)
		}
		return nil, ErrNone
	}
	c := dial(r.Socket)
	c.root = r.Root
	if err := c.call(ctx, http.MethodGet, "/v1/holder", nil, &c.About); err != nil {
		return nil, fmt.Errorf("run %s, pid %d, holds the instances and does not answer: %w", r.Run, r.PID, err)
	}
	if c.About.Version != Version {
		return c, &vitrine.BadInput{
			File: folder, Found: fmt.Sprintf("run %s was started by another version of vitrine", r.Run),
			Want: "control it by that version, or end it by vitrine flex stop",
		}
	}
	return c, nil
}

func dial(socket string) *Client {
	return &Client{caller: access.Caller{
		Service: "the holder", HTTP: &http.Client{Timeout: callTimeout, Transport: access.BySocket(socket)}, Most: 256 << 20,
	}}
}

// Alive reports whether the holder has not ended yet.
func (c *Client) Alive() bool { return runstate.Alive(c.root, c.About.Run) }

// OnRecord reports whether the run is still on record. If it is so after the end of the holder, cleaning
// may have something of the run to remove.
func (c *Client) OnRecord() bool {
	_, err := os.Stat(filepath.Join(c.root, c.About.Run))
	return !errors.Is(err, fs.ErrNotExist)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	return c.caller.Call(ctx, method, "http://holder"+path, in, out)
}

// Units returns the units in the order of their names.
func (c *Client) Units(ctx context.Context) (all []unit.Unit, err error) {
	return all, c.call(ctx, http.MethodGet, "/v1/units", nil, &all)
}

// Start calls Holder.Start.
func (c *Client) Start(ctx context.Context, o unit.Order) error {
	return c.call(ctx, http.MethodPut, "/v1/units", o, nil)
}

// Remove calls Holder.Remove.
func (c *Client) Remove(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/v1/units/"+url.PathEscape(name), nil, nil)
}

// End asks the holder to remove all units and exit. It returns without waiting for that.
func (c *Client) End(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/end", nil, nil)
}
