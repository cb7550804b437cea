package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"vitrine"
	"vitrine/flex/unit"
	"vitrine/internal/access"
	"vitrine/internal/durable"
)

// Version is the version of the holder's interface. An orchestrator controls only holders of
// its own version.
const Version = 1

// About identifies a holder.
type About struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Run     string `json:"run"`    // Label of the run, on all its resources.
	Digest  string `json:"digest"` // Digest of the substrate and fabric options.
}

// A Record says how to reach the holder of a state folder. The holder writes it there.
type Record struct {
	Run    string `json:"run"`
	Root   string `json:"root"` // Folder of the runs; their locks show which runs are alive.
	Socket string `json:"socket"`
	PID    int    `json:"pid"`
}

// RecordFile is the name of the record in a state folder.
const RecordFile = "holder.json"

// LockFile is the name of the file in a state folder that the holder locks. Only this lock shows a holder that has no
// record yet, or whose run has lost its folder.
const LockFile = "holder.lock"

// Save writes the record durably.
func (r Record) Save(folder string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(folder, RecordFile), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("record the holder: %w", err)
	}
	return nil
}

// socketName is the name of the socket in the folder of the holder's run. Only the holder's
// user can access the folder.
const socketName = "flex.sock"

// Listen opens the socket in the run's folder.
func Listen(ctx context.Context, folder string) (net.Listener, error) {
	path := filepath.Join(folder, socketName)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the orchestrator: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// errAsked is the cause of the end of a holder after POST /v1/end.
var errAsked = errors.New("asked to end")

// maxOrder is the largest order, in bytes: a deployment file has at most 1 MiB.
const maxOrder = 4 << 20

// Serve serves the orchestrator until it asks the holder to end, ctx ends, or a process of the fabric ends, which
// is an error. Then it closes the Holder, which removes all units. If the orchestrator asked, Serve also removes
// the services' files.
func (h *Holder) Serve(ctx context.Context, l net.Listener) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	server := &http.Server{
		Handler: h.handler(func() { end(errAsked) }), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	err := h.watch(ctx, done)
	if err != nil {
		// The next holder must be the first to say that the units are gone. Otherwise the orchestrator would take them
		// for stopped, so that instances would not back off and services would not come first again.
		_ = server.Close()
	}
	failed := h.Close(context.WithoutCancel(ctx)) // without an error the server runs meanwhile, so that Units shows the progress
	if errors.Is(context.Cause(ctx), errAsked) {
		failed = errors.Join(failed, h.removeFiles())
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close() // drop the remaining clients
	}
	return errors.Join(err, failed)
}

// watch waits for the end of ctx, which is no error, of the server, or of a process of the fabric. The fabric does
// not recover from that, but the orchestrator starts another holder with a new fabric.
func (h *Holder) watch(ctx context.Context, served <-chan error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := h.site.FabricEnded(); err != nil {
				return err
			}
		}
	}
}

func (h *Holder) handler(end func()) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/holder", func(w http.ResponseWriter, _ *http.Request) {
		access.Answer(w, http.StatusOK, About{Version: Version, PID: os.Getpid(), Run: h.config.Testbed.Run, Digest: h.config.Digest})
	})
	m.HandleFunc("GET /v1/units", func(w http.ResponseWriter, _ *http.Request) { access.Answer(w, http.StatusOK, h.Units()) })
	m.HandleFunc("PUT /v1/units", func(w http.ResponseWriter, r *http.Request) {
		var o unit.Order
		in := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder))
		err := in.Decode(&o)
		if err == nil {
			err = h.Start(o)
		}
		switch {
		case vitrine.IsBadInput(err):
			access.Refuse(w, http.StatusBadRequest, err.Error())
		case err != nil:
			access.Refuse(w, http.StatusConflict, err.Error())
		default:
			access.Answer(w, http.StatusAccepted, struct{}{})
		}
	})
	m.HandleFunc("DELETE /v1/units/{name}", func(w http.ResponseWriter, r *http.Request) {
		h.Remove(r.PathValue("name"))
		access.Answer(w, http.StatusAccepted, struct{}{})
	})
	m.HandleFunc("POST /v1/end", func(w http.ResponseWriter, _ *http.Request) {
		access.Answer(w, http.StatusAccepted, struct{}{})
		end()
	})
	return m
}
