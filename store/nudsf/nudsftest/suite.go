package nudsftest

import (
	"testing"

	"vitrine/store"
)

// Run runs the suite over an engine. Shared engines also get the tests with several services.
func Run(t *testing.T, opener Opener) {
	tests := []struct {
		name string
		run  func(t *testing.T, s *server)
	}{
		{"Records", testRecords},
		{"RecordConditions", testRecordConditions},
		{"ChangesAfterClockSetBack", testChangesAfterClockSetBack},
		{"RecordBodies", testRecordBodies},
		{"Meta", testMeta},
		{"Blocks", testBlocks},
		{"Search", testSearch},
		{"BulkDelete", testBulkDelete},
		{"Protocols", testProtocols},
		{"Problems", testProblems},
		{"Subscriptions", testSubscriptions},
		{"SubscriptionFilter", testSubscriptionFilter},
		{"SubscriptionExpiry", testSubscriptionExpiry},
		{"RecordExpiry", testRecordExpiry},
		{"Timers", testTimers},
		{"TimerExpiry", testTimerExpiry},
		{"TimerPatch", testTimerPatch},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // most tests wait for something to fall due
			test.run(t, running(t, opener(t), nil))
		})
	}
	for name, run := range map[string]func(*testing.T, func() store.Engine){
		"Restart":            testRestart,
		"CallbackAfterCrash": testCallbackAfterCrash,
		"DeadReceiver":       testDeadReceiver,
		"FailedOnce":         testFailedOnce,
		"OnceAmongServices":  testOnceAmongServices,
		"NotAllowed":         testNotAllowed,
		"ManyTimers":         testManyTimers,
		"ClockJumps":         testClockJumps,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, opener(t))
		})
	}
}
