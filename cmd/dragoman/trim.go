package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	settling  = 5 * time.Second  // after the start everything that runs once has run
	lookEvery = 30 * time.Second // whether it is quiet
	quietMost = 4 << 20          // bytes allocated between two looks: a turn every second or so
	worthOnce = 16 << 20         // bytes allocated since the last time: less has left little behind
)

// giveBack returns memory to the system that is not needed for now, until ctx
// ends: soon after the start what only that needed, and whenever it becomes quiet
// what the work before has left. The collector by itself begins only when as
// much as twice of what is alive has been allocated, and at rest that is never.
func (a *app) giveBack(ctx context.Context) {
	look := time.NewTimer(settling)
	defer look.Stop()
	var rest rest
	for first := true; ; first = false {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		look.Reset(lookEvery)
		if first {
			trim(a.log)
		}
		if rest.begins(allocated()) || first {
			debug.FreeOSMemory()
		}
	}
}

// rest finds out when a rest begins that is worth a collection, by how much was
// allocated in all: asking for that stops nothing and nobody.
type rest struct{ seen, freed uint64 }

// begins reports whether little has been allocated since it was called last, and
// much since it was true last.
func (r *rest) begins(allocated uint64) bool {
	quiet := allocated-r.seen < quietMost
	r.seen = allocated
	if !quiet || allocated-r.freed < worthOnce {
		return false
	}
	r.freed = allocated
	return true
}

// allocated returns how many bytes the program has allocated since its start.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
