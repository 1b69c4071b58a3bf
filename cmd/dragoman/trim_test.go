package main

import (
	"runtime"
	"testing"
)

func TestRestBeginsOnceAfterWork(t *testing.T) {
	const mb = 1 << 20
	var r rest
	for i, c := range []struct {
		allocated uint64 // since the look before, in MB
		begins    bool
	}{
		{5, false}, // the start
		{1, false}, // nothing to speak of has been left
		{200, false},
		{300, false}, // busy
		{1, true},
		{1, false},
		{3, false},
		{100, false},
		{0, true},
		{3, false},
		{3, false},
		{3, false},
		{3, false},
		{3, false},
		{3, true}, // what trickles in adds up
	} {
		if got := r.begins(r.seen + c.allocated*mb); got != c.begins {
			t.Errorf("look %d: %v, not %v", i, got, c.begins)
		}
	}
}

func TestAllocatedCounts(t *testing.T) {
	before := allocated()
	room := make([]byte, 10<<20)
	if n := allocated() - before; n < 10<<20 || n > 100<<20 {
		t.Errorf("%d bytes", n)
	}
	runtime.KeepAlive(room)
}
