package nudsf_test

import (
	"log/slog"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/etcd"
	"vitrine/store/nudsf/nudsftest"
	"vitrine/store/redis"
	"vitrine/store/storetest"
)

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
}

func TestRedis(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	nudsftest.Run(t, func(t *testing.T) func() store.Engine {
		return func() store.Engine {
			e, err := redis.Open(t.Context(), redis.Config{Addresses: []string{address}, Prefix: t.Name(), Now: time.Now, Logger: testLog(t)})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	})
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	endpoint := storetest.Etcd(t, 1)[0].Endpoint
	nudsftest.Run(t, func(t *testing.T) func() store.Engine {
		return func() store.Engine {
			e, err := etcd.Open(t.Context(), etcd.Config{Endpoints: []string{endpoint}, Prefix: t.Name() + "/", Dial: 20 * time.Second, Now: time.Now, Logger: testLog(t)})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	})
}
