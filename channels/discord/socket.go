package discord

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/gorilla/websocket"
)

// socket is one gateway connection. One goroutine reads; hello and introduce
// write before beat starts, and from then on only beat does.
type socket struct {
	ws       *websocket.Conn
	interval time.Duration // between heartbeats
	buf      bytes.Buffer  // the packet being read
	beatNow  chan struct{} // capacity 1: Discord wants a heartbeat at once

	acked  atomic.Bool // the last heartbeat was answered
	silent atomic.Bool // the connection was given up because one was not
}

// maxInterval is the longest heartbeat interval that is believed: a day.
const maxInterval = 24 * 60 * 60 * 1000

// next reads one packet into p.
func (k *socket) next(p *discordgo.Event) error {
	_, r, err := k.ws.NextReader()
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if k.buf.Cap() > keepBuffer {
		k.buf = bytes.Buffer{}
	}
	k.buf.Reset()
	if _, err := k.buf.ReadFrom(r); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if err := json.Unmarshal(k.buf.Bytes(), p); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// hello reads HELLO, which says how often a heartbeat is due.
func (k *socket) hello() error {
	_ = k.ws.SetReadDeadline(time.Now().Add(helloTimeout))
	var p discordgo.Event
	if err := k.next(&p); err != nil {
		return err
	}
	var in struct {
		Interval int64 `json:"heartbeat_interval"` // milliseconds
	}
	if p.Operation != opHello || json.Unmarshal(p.RawData, &in) != nil {
		return fmt.Errorf("opcode %d came instead", p.Operation)
	}
	if in.Interval <= 0 || in.Interval > maxInterval {
		return fmt.Errorf("a heartbeat every %d ms is asked for", in.Interval)
	}
	k.interval = time.Duration(in.Interval) * time.Millisecond
	return nil
}

// send writes one packet.
func (k *socket) send(op int, data any) error {
	_ = k.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
	return k.ws.WriteJSON(struct {
		Op   int `json:"op"`
		Data any `json:"d"`
	}{op, data})
}

// beat sends heartbeats until quit closes. Where one is due and the one before
// it has not been answered, or cannot be sent, it ends the connection.
func (k *socket) beat(seq *atomic.Int64, quit <-chan struct{}) {
	k.acked.Store(true)
	// Discord wants the first one at a random time.
	t := time.NewTimer(rand.N(k.interval)) //nolint:gosec // no secret hangs on it
	defer t.Stop()
	for {
		select {
		case <-t.C:
			t.Reset(k.interval)
			if !k.acked.Swap(false) {
				k.silent.Store(true)
				k.end(closeResume)
				return
			}
		case <-k.beatNow:
		case <-quit:
			return
		}
		var last any // null before the first event
		if n := seq.Load(); n > 0 {
			last = n
		}
		if k.send(opHeartbeat, last) != nil {
			k.end(closeResume)
			return
		}
	}
}

// beatAtOnce asks beat for a heartbeat out of turn.
func (k *socket) beatAtOnce() {
	select {
	case k.beatNow <- struct{}{}:
	default: // one is due already
	}
}

// end says goodbye, if that can be done quickly, and closes the connection.
// Any code but 1000 and 1001 leaves the session to be resumed. Safe from any
// goroutine and more than once.
func (k *socket) end(code int) {
	_ = k.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(closeGrace))
	_ = k.ws.Close()
}
