package discord

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/dragoman-chat/dragoman/pkg/bus"
)

// Discord tells when a message is edited or deleted. Such news moves no cursor
// and opens no lane: where it is missed, what is fetched later shows the message
// as it is by then. In a channel that has a lane it waits behind the messages.

// change is news of messages that were written before: another text, or gone.
type change struct {
	channel string
	edited  *discordgo.Message // nil if they are gone
	gone    []string           // their ids
}

// parseEdit reads MESSAGE_UPDATE; nil if nobody has edited anything. Discord
// sends it, too, when it adds a preview or a message is pinned, and may send a
// part of the message only. It is pure.
func parseEdit(data []byte, self string) (*change, error) {
	if own(data, self) != nil {
		return nil, nil //nolint:nilnil // nil is the documented "nothing"
	}
	var in struct {
		Content *string `json:"content"`
		Edited  *string `json:"edited_timestamp"`
	}
	if err := json.Unmarshal(data, &in); err != nil || in.Content == nil || in.Edited == nil {
		return nil, err
	}
	m := &discordgo.Message{}
	if err := json.Unmarshal(data, m); err != nil || m.EditedTimestamp == nil || m.Author == nil || m.ChannelID == "" {
		return nil, err
	}
	return &change{channel: m.ChannelID, edited: m}, nil
}

// parseGone reads MESSAGE_DELETE and MESSAGE_DELETE_BULK; nil if they name no
// message. It is pure.
func parseGone(data []byte) (*change, error) {
	var in struct {
		ID        string   `json:"id"`
		IDs       []string `json:"ids"`
		ChannelID string   `json:"channel_id"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, err
	}
	ch := &change{channel: in.ChannelID}
	for _, id := range append(in.IDs, in.ID) {
		if id != "" {
			ch.gone = append(ch.gone, id)
		}
	}
	if ch.channel == "" || len(ch.gone) == 0 {
		return nil, nil //nolint:nilnil // nil is the documented "nothing"
	}
	return ch, nil
}

// convertEdit turns an edited message into the news that it has another text.
// ok is false where convert's is. It is pure.
func convertEdit(o origin, m *discordgo.Message) (msg bus.InboundMessage, ok bool) {
	if msg, ok = convert(o, m); !ok || m.EditedTimestamp == nil {
		return bus.InboundMessage{}, false
	}
	msg.Kind, msg.Amends = bus.KindEdited, msg.ID
	msg.ID = fmt.Sprintf("e:%s:%s:%d", m.ChannelID, m.ID, m.EditedTimestamp.UnixMilli())
	return msg, true
}

// goneMessage is the news that a message was deleted, noticed at now: Discord
// says neither when nor by whom. It is pure.
func goneMessage(name, channel, id string, now time.Time) bus.InboundMessage {
	return bus.InboundMessage{
		Address:   bus.Address{Channel: name, ChatID: channel},
		ID:        "d:" + channel + ":" + id,
		MessageID: id,
		Amends:    messageID(channel, id),
		Kind:      bus.KindDeleted,
		Time:      now.UTC(),
	}
}

// change takes news of messages. It waits behind a lane, since what it is about
// may wait there; at the end it does not, since what waits is left out then.
func (d *delivery) change(ctx context.Context, ch *change) {
	var news []bus.InboundMessage
	if m := ch.edited; m != nil {
		// A thread that is not known yet is not worth a request.
		o := origin{channel: d.c.name, self: d.self, parent: d.spots[ch.channel].parent}
		if msg, ok := convertEdit(o, m); ok {
			news = append(news, msg)
		}
	}
	for _, id := range ch.gone {
		news = append(news, goneMessage(d.c.name, ch.channel, id, time.Now()))
	}
	if l := d.lanes[ch.channel]; l != nil && !d.stopping {
		l.changes = append(l.changes, news...)
		d.held += len(news)
		return
	}
	d.add(ctx, news...)
}

// add puts messages into the batch, and publishes whenever it is full.
func (d *delivery) add(ctx context.Context, all ...bus.InboundMessage) {
	for _, msg := range all {
		d.messages = append(d.messages, msg)
		if len(d.messages) >= maxBatch {
			d.publish(ctx, false)
		}
	}
}
