package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// A TokenFile has the accepted tokens of a file, which may change while the service runs.
type TokenFile struct {
	path  string
	known atomic.Pointer[Tokens]
}

// ReadTokenFile reads a file of tokens. Without a path, there are no tokens.
func ReadTokenFile(path string) (*TokenFile, error) {
	t := &TokenFile{path: path}
	return t, t.Reload()
}

// Reload reads the file again. After an error the tokens stay unchanged.
func (t *TokenFile) Reload() error {
	known, err := readTokens(t.path)
	if err == nil {
		t.known.Store(&known)
	}
	return err
}

// Tokens returns the tokens in force.
func (t *TokenFile) Tokens() Tokens { return *t.known.Load() }

// A ServerTLS has the TLS configuration of a server, whose PEM files may change while the
// server runs.
type ServerTLS struct {
	Certificate, Key string
	Clients          string // authorities of client certificates; empty: clients need no certificate

	current atomic.Pointer[tls.Config]
}

// LoadTLS reads the files as TLS does.
func LoadTLS(certificate, key, clients string) (*ServerTLS, error) {
	t := &ServerTLS{Certificate: certificate, Key: key, Clients: clients}
	return t, t.Reload()
}

// Reload reads the files again, for new connections. After an error the configuration stays
// unchanged.
func (t *ServerTLS) Reload() error {
	c, err := TLS(t.Certificate, t.Key, t.Clients)
	if bad, ok := errors.AsType[*TLSError](err); ok {
		return fmt.Errorf("%s: %w", bad.File, err)
	}
	if err == nil {
		t.current.Store(c)
	}
	return err
}

// Config returns a configuration that uses the last loaded files for each connection.
func (t *ServerTLS) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.current.Load(), nil },
	}
}

// Expiry returns when the certificate in force expires.
func (t *ServerTLS) Expiry() time.Time { return t.current.Load().Certificates[0].Leaf.NotAfter }

// rereadEvery bounds how long a change of the files goes unnoticed.
const rereadEvery = 30 * time.Second

// Reread calls all reload functions on request and every 30 s, until ctx ends. It logs their
// errors, and stores in failed whether the last calls had any. asked may be nil. Without functions,
// Reread returns at once.
func Reread(ctx context.Context, asked <-chan struct{}, log *slog.Logger, failed *atomic.Bool, reload ...func() error) {
	if len(reload) == 0 {
		return
	}
	ticker := time.NewTicker(rereadEvery)
	defer ticker.Stop()
	for {
		wanted := false
		select {
		case <-ctx.Done():
			return
		case <-asked:
			wanted = true
		case <-ticker.C:
		}
		var errs []error
		for _, read := range reload {
			errs = append(errs, read())
		}
		err := errors.Join(errs...)
		failed.Store(err != nil)
		switch {
		case err != nil:
			log.Error("cannot reload tokens, certificates or keys: the old ones stay in use", "error", err)
		case wanted:
			log.Info("tokens and certificates were read again")
		}
	}
}
