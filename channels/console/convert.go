package console

import (
	"crypto/rand"
	"strconv"
	"time"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// senderID is the one person at the console.
const senderID = "local"

// ids makes message ids that are new in every run: the ledger remembers those
// of earlier runs.
type ids struct {
	run string
	n   int
}

func newRunID() string { return rand.Text()[:12] }

func (i *ids) next() string {
	i.n++
	return i.run + "-" + strconv.Itoa(i.n)
}

// toInbound turns what was typed into what the gateway admits.
func toInbound(channel, id, text string, at time.Time) bus.InboundMessage {
	m := bus.InboundMessage{
		Address:   bus.Address{Channel: channel, ChatID: ChatID},
		ID:        "m:" + ChatID + ":" + id,
		MessageID: id,
		Sender:    bus.Sender{ID: senderID},
		Kind:      bus.KindMessage,
		Time:      at,
		Text:      text,
		Metadata:  map[string]string{"message_id": id, "user_id": senderID},
	}
	if name, args, ok := channels.ParseCommand(text); ok {
		m.Command, m.Args = name, args
	}
	return m
}
