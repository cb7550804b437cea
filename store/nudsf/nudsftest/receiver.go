package nudsftest

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// A receiver accepts callbacks.
type receiver struct {
	base string
	gate chan struct{} // if not nil, answers wait until it is closed

	mu     sync.Mutex
	status int // status of the answers
	posts  []post
}

type post struct {
	path, kind, location, proto string
	contentType                 string
	body                        []byte
}

// receive starts a receiver of callbacks.
func receive(t *testing.T) *receiver {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{base: "http://" + listener.Addr().String(), status: http.StatusNoContent}
	web := &http.Server{Handler: r, Protocols: bothProtocols(), ReadHeaderTimeout: patience}
	var group sync.WaitGroup
	group.Go(func() { _ = web.Serve(listener) })
	t.Cleanup(func() {
		_ = web.Close()
		group.Wait()
	})
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.posts = append(r.posts, post{
		request.URL.Path, request.Header.Get("3gpp-Sbi-Callback"), request.Header.Get("Content-Location"), request.Proto,
		request.Header.Get("Content-Type"), body,
	})
	status := r.status
	r.mu.Unlock()
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-request.Context().Done():
		}
	}
	w.WriteHeader(status)
}

// answer sets the status of later answers.
func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// at returns the posts to a path so far.
func (r *receiver) at(path string) []post {
	r.mu.Lock()
	defer r.mu.Unlock()
	var posts []post
	for _, p := range r.posts {
		if p.path == path {
			posts = append(posts, p)
		}
	}
	return posts
}

// wait waits for n posts to a path and returns them.
func (r *receiver) wait(t *testing.T, path string, n int) []post {
	t.Helper()
	var posts []post
	eventually(t, "callbacks to "+path, func() bool {
		posts = r.at(path)
		return len(posts) >= n
	})
	return posts
}
