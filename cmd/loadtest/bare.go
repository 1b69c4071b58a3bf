package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
	openai "github.com/sashabaranov/go-openai"
)

// bare is the physical limit: the HTTP calls the daemon makes for a turn, with
// the same bodies through the same client libraries, and nothing between. It
// keeps the conversation, because a request cannot have the same body without,
// and nothing else: no checks, no ledger, no order, no retries, no log.
type bare struct {
	bot     *tgbotapi.BotAPI
	model   *openai.Client
	rounds  int
	history int
	system  string
	tools   []openai.Tool

	mu    sync.Mutex // chats are answered each on a goroutine of its own
	chats map[int64][]openai.ChatCompletionMessage
}

// bareToolResult stands for what the tool returns in an empty workspace.
const bareToolResult = "(empty)"

// runBare is the hidden subcommand.
func runBare(ctx context.Context, args []string, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := serveBare(ctx, args, errOut); err != nil && ctx.Err() == nil {
		fmt.Fprintln(errOut, "bare:", err)
		return 1
	}
	return 0
}

func serveBare(ctx context.Context, args []string, errOut io.Writer) error {
	flags := flag.NewFlagSet("bare", flag.ContinueOnError)
	flags.SetOutput(errOut)
	telegram := flags.String("telegram", "", "base URL of the Bot API")
	botToken := flags.String("token", "", "bot token")
	modelBase := flags.String("model", "", "base URL of the model API")
	rounds := flags.Int("rounds", 0, "rounds with a tool")
	history := flags.Int("history", 0, "messages of history in a request")
	file := flags.String("template", "", "file with system prompt and tools")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	b := &bare{rounds: *rounds, history: *history, chats: make(map[int64][]openai.ChatCompletionMessage)}
	if err := b.load(*file); err != nil {
		return err
	}
	cfg := openai.DefaultConfig(modelKey)
	cfg.BaseURL = *modelBase
	cfg.HTTPClient = &http.Client{Transport: newTransport()}
	b.model = openai.NewClientWithConfig(cfg)

	if err := tgbotapi.SetLogger(log.New(io.Discard, "", 0)); err != nil { //nolint:forbidigo // the library asks for one
		return fmt.Errorf("silence the library: %w", err)
	}
	client := bound{ctx: ctx, client: &http.Client{Transport: newTransport()}}
	bot, err := tgbotapi.NewBotAPIWithClient(*botToken, *telegram+"/bot%s/%s", client)
	if err != nil {
		return fmt.Errorf("getMe: %w", err)
	}
	b.bot = bot
	return b.poll(ctx)
}

// load reads the template the rig learnt from the daemon.
func (b *bare) load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the template: %w", err)
	}
	var t template
	if err := json.Unmarshal(text, &t); err != nil {
		return fmt.Errorf("read the template: %w", err)
	}
	b.system = t.System
	for _, tool := range t.Tools {
		schema, err := json.Marshal(tool.Function.Parameters)
		if err != nil {
			return fmt.Errorf("read the template: %w", err)
		}
		b.tools = append(b.tools, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name: tool.Function.Name, Description: tool.Function.Description, Parameters: json.RawMessage(schema),
		}})
	}
	return nil
}

// newTransport keeps connections the way the daemon does.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
	}
}

// bound gives the library's requests a context.
type bound struct {
	ctx    context.Context
	client *http.Client
}

// Do implements tgbotapi.HTTPClient.
func (b bound) Do(r *http.Request) (*http.Response, error) {
	return b.client.Do(r.WithContext(b.ctx))
}

// poll answers every update on a goroutine of its own until ctx ends.
func (b *bare) poll(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	u := tgbotapi.UpdateConfig{Limit: 100, Timeout: 30, AllowedUpdates: []string{"message"}}
	for {
		updates, err := b.bot.GetUpdates(u)
		if err != nil {
			return fmt.Errorf("getUpdates: %w", err)
		}
		for _, update := range updates {
			u.Offset = update.UpdateID + 1
			if m := update.Message; m != nil {
				running.Go(func() {
					if err := b.turn(ctx, m.Chat.ID, m.Text); err != nil && ctx.Err() == nil {
						fmt.Fprintln(os.Stderr, "bare: turn:", err)
					}
				})
			}
		}
	}
}

func (b *bare) turn(ctx context.Context, chat int64, text string) error {
	b.mu.Lock()
	past := b.chats[chat]
	b.mu.Unlock()
	past = append(past, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser, Content: text})
	for round := 0; ; round++ {
		reply, err := b.ask(ctx, past)
		if err != nil {
			return err
		}
		past = append(past, reply)
		if len(reply.ToolCalls) == 0 || round > b.rounds {
			break
		}
		for _, call := range reply.ToolCalls {
			past = append(past, openai.ChatCompletionMessage{
				Role: openai.ChatMessageRoleTool, ToolCallID: call.ID, Content: bareToolResult,
			})
		}
	}
	answer := past[len(past)-1].Content
	past = b.trim(past)
	b.mu.Lock()
	b.chats[chat] = past
	b.mu.Unlock()
	m := tgbotapi.NewMessage(chat, answer)
	m.DisableWebPagePreview = true
	_, err := b.bot.Send(m)
	return err
}

// trim keeps the newest messages, beginning with a question: an answer to a
// call that is not there would be refused.
func (b *bare) trim(past []openai.ChatCompletionMessage) []openai.ChatCompletionMessage {
	past = past[max(0, len(past)-b.history):]
	for len(past) > 0 && past[0].Role != openai.ChatMessageRoleUser {
		past = past[1:]
	}
	return past
}

func (b *bare) ask(ctx context.Context, past []openai.ChatCompletionMessage) (openai.ChatCompletionMessage, error) {
	messages := make([]openai.ChatCompletionMessage, 0, len(past)+1)
	if b.system != "" {
		messages = append(messages, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleSystem, Content: b.system})
	}
	resp, err := b.model.CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model: modelName, Messages: append(messages, past...), Tools: b.tools,
	})
	if err != nil {
		return openai.ChatCompletionMessage{}, fmt.Errorf("model: %w", err)
	}
	if len(resp.Choices) == 0 {
		return openai.ChatCompletionMessage{}, errors.New("model: no choice")
	}
	return resp.Choices[0].Message, nil
}
