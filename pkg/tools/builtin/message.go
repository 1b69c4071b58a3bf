package builtin

import (
	"context"
	"errors"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/bus"
	"github.com/dragoman-chat/dragoman/pkg/tools"
)

// deliveryWait is how long the message tool waits for the platform's word.
const deliveryWait = 5 * time.Second

// MessageTool sends a message to the conversation that asked, or to another one
// that is named in full and that the caller may reach.
type MessageTool struct {
	outbox bus.Outbox
	reach  func(ctx context.Context, call tools.Call, target bus.Address) error
}

// MessageOption configures a MessageTool.
type MessageOption func(*MessageTool)

// WithOutbox connects the tool to what delivers its messages. Without it every
// call ends in an error result that says so.
func WithOutbox(outbox bus.Outbox) MessageOption {
	return func(t *MessageTool) { t.outbox = outbox }
}

// WithReach sets who may write to which other conversation: nil allows, an
// error refuses, and its text is told to the model. Without it no other
// conversation can be reached. It is never asked about the conversation the
// call came from.
func WithReach(reach func(ctx context.Context, call tools.Call, target bus.Address) error) MessageOption {
	return func(t *MessageTool) { t.reach = reach }
}

// NewMessageTool returns the message tool.
func NewMessageTool(opts ...MessageOption) *MessageTool {
	t := &MessageTool{}
	for _, opt := range opts {
		opt(t)
	}
	return t
}

// Name returns "message".
func (t *MessageTool) Name() string { return "message" }

// Idempotent is true: the call names the message, and the outbox knows it.
func (t *MessageTool) Idempotent() bool { return true }

// Description tells the model when to use the tool.
func (t *MessageTool) Description() string {
	return "Send a message right now, before the turn ends or to another conversation. Your final answer reaches the person by itself, " +
		"so do not use this for it. Without channel and chat_id the message goes to this conversation."
}

// Parameters returns the schema of the arguments.
func (t *MessageTool) Parameters() map[string]any {
	return schema(map[string]any{
		"content": property("string", "The text, as Markdown."),
		"channel": property("string", "The channel of another conversation, for example telegram. Needs chat_id."),
		"chat_id": property("string", "The id of another conversation on that channel."),
	}, "content")
}

// Execute sends the message and reports what became of it: delivered, failed,
// or queued when that is not known within five seconds.
func (t *MessageTool) Execute(ctx context.Context, args map[string]any) *tools.ToolResult {
	content := text(args, "content")
	if content == "" {
		return tools.ErrorResult("content is required: write the text to send.")
	}
	if t.outbox == nil {
		return tools.ErrorResult("Nothing was sent: no outbox is connected to this tool.")
	}
	call, _ := tools.CallFrom(ctx)
	target, problem := t.target(ctx, call, args)
	if problem != nil {
		return problem
	}
	wait, cancel := context.WithTimeout(ctx, deliveryWait)
	defer cancel()
	_, err := t.outbox.PublishOutbound(wait, bus.OutboundMessage{Address: target, Key: key(call), Text: content})
	switch {
	case err == nil && target == here(call):
		return tools.SilentResult("Delivered. The person has already seen this text here: do not repeat it in your answer.")
	case err == nil:
		return tools.SilentResult("Delivered to " + target.String() + ". Whoever reads there has already seen the text.")
	case errors.Is(err, bus.ErrQueued):
		return tools.SilentResult("Queued for " + target.String() + ": it is stored and will be delivered as soon as possible. Do not send it again.")
	}
	return tools.ErrorResult("Not delivered to " + target.String() + ": " + err.Error()).WithError(err)
}

// target decides where the message goes. An id of one channel is never taken
// for one of another.
func (t *MessageTool) target(ctx context.Context, call tools.Call, args map[string]any) (bus.Address, *tools.ToolResult) {
	channel, chat := text(args, "channel"), text(args, "chat_id")
	origin := here(call)
	switch {
	case channel == "" && chat == "", channel == call.Channel && chat == "":
		if origin.IsZero() {
			return origin, tools.ErrorResult("Nothing was sent: this call belongs to no conversation, so channel and chat_id are required.")
		}
		return origin, nil
	case chat == "":
		return origin, tools.ErrorResult("Nothing was sent: chat_id is required with channel " + channel + ", because the id of this conversation means nothing there.")
	case channel == "" && call.Channel == "":
		return origin, tools.ErrorResult("Nothing was sent: channel is required with chat_id.")
	case channel == "":
		channel = call.Channel
	}
	target := bus.Address{Channel: channel, ChatID: chat}
	if target == origin {
		return target, nil
	}
	if t.reach == nil {
		return target, tools.ErrorResult("Nothing was sent: other conversations cannot be reached from here.")
	}
	if err := t.reach(ctx, call, target); err != nil {
		return target, tools.ErrorResult("Nothing was sent to " + target.String() + ": " + err.Error()).WithError(err)
	}
	return target, nil
}
