//go:build !linux

package hop

import (
	"errors"
	"net"
	"syscall"
	"time"
)

const oobSize = 0

func stampArrivals(*net.UDPConn) error { return nil }

func arrivalTime([]byte) (time.Time, bool) { return time.Time{}, false }

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
