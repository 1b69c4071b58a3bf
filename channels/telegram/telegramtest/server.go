// Package telegramtest is a strict stand-in for the Telegram Bot API: it
// accepts what the platform accepts, refuses what the platform refuses, in the
// platform's words, and keeps a record of both.
//
// A Server is an http.Handler for one bot. Tests reach it through an in-memory
// Network, the load rig through a listener of its own.
package telegramtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The bot every Server knows, and a token of the right form that it refuses.
const (
	Token      = "7000000001:AAE-TestTokenThatOpensNothing_0123456"
	WrongToken = "7000000001:AAE-TestTokenThatIsRefused____012345"
	BotID      = 7000000001
	BotName    = "dragoman_bot"
)

// Server is the fake. All methods are safe for concurrent use.
type Server struct {
	// OnSend is called for every message accepted from the bot, if not nil. Set
	// it before the first request.
	OnSend func(Sent)
	// OnServe is called with the ids of every batch of updates that is handed
	// to the bot, if not nil. Set it before the first request.
	OnServe func(updateIDs []int64)
	// Forget keeps no record of what was sent and said, for long loads.
	Forget bool

	mu       sync.Mutex
	chats    map[int64]*chat
	bot      User
	lastChat int64
	webhook  bool
	cutNext  bool
	cutPoll  int
	sent     []Sent
	actions  []Action
	requests map[string]int

	updates
}

// chat is a conversation the bot can know.
type chat struct {
	Chat
	topics   map[int64]bool // open ones
	messages map[int64]stored
	lastID   int64
	blocked  string // the 403 the bot gets
	retry    time.Duration
	until    time.Time // when the throttle ends
	migrated int64
}

// stored is what the server remembers of a message.
type stored struct {
	from   User
	text   string
	thread int64
}

// New returns a server without chats.
func New() *Server {
	s := &Server{
		chats:    make(map[int64]*chat),
		bot:      User{ID: BotID, IsBot: true, FirstName: "Dragoman", Username: BotName},
		requests: make(map[string]int),
		lastChat: 1000,
	}
	s.init()
	return s
}

// response is the envelope of every answer.
type response struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result,omitempty"`
	ErrorCode   int             `json:"error_code,omitempty"`
	Description string          `json:"description,omitempty"`
	Parameters  *parameters     `json:"parameters,omitempty"`
}

type parameters struct {
	RetryAfter      int   `json:"retry_after,omitempty"`
	MigrateToChatID int64 `json:"migrate_to_chat_id,omitempty"`
}

func ok(result any) response {
	raw, err := json.Marshal(result)
	if err != nil {
		return fail(http.StatusInternalServerError, "Internal Server Error")
	}
	return response{OK: true, Result: raw}
}

func fail(code int, description string) response {
	return response{ErrorCode: code, Description: description}
}

func badRequest(what string) response {
	return fail(http.StatusBadRequest, "Bad Request: "+what)
}

// ServeHTTP answers /bot<token>/<method>.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, method, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	if !found || !strings.HasPrefix(r.URL.Path, "/bot") {
		reply(w, fail(http.StatusNotFound, "Not Found"))
		return
	}
	if token != Token {
		// A token of the right form that belongs to no bot is unauthorized;
		// anything else is no address at all.
		if id, secret, ok := strings.Cut(token, ":"); ok && isNumber(id) && len(secret) >= 35 {
			reply(w, fail(http.StatusUnauthorized, "Unauthorized"))
			return
		}
		reply(w, fail(http.StatusNotFound, "Not Found"))
		return
	}
	p, err := readParams(r)
	if err != nil {
		reply(w, badRequest("can't parse the request"))
		return
	}
	s.count(method)
	// Method names are case-insensitive.
	switch strings.ToLower(method) {
	case "getupdates":
		s.getUpdates(w, r, p)
	case "sendmessage":
		s.sendMessage(w, r, p)
	case "sendchataction":
		reply(w, s.sendChatAction(p))
	case "getme":
		reply(w, ok(s.me()))
	case "setmycommands":
		reply(w, setMyCommands(p))
	case "deletewebhook":
		s.SetWebhook(false)
		reply(w, ok(true))
	case "getwebhookinfo":
		reply(w, s.webhookInfo())
	default:
		reply(w, fail(http.StatusNotFound, "Not Found: method not found"))
	}
}

func isNumber(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}

func reply(w http.ResponseWriter, resp response) {
	raw, err := json.Marshal(resp)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	code := http.StatusOK
	if !resp.OK {
		code = resp.ErrorCode
	}
	writeRaw(w, code, raw)
}

func writeRaw(w http.ResponseWriter, code int, raw []byte) {
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(raw))}
	w.WriteHeader(code)
	_, _ = w.Write(raw) // the client may be gone, which is its own affair
}

func (s *Server) count(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[method]++
}

// Requests returns how often a method was called.
func (s *Server) Requests(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[method]
}

// me is what getMe answers: the bot with the fields only it sees.
func (s *Server) me() any {
	return struct {
		User
		CanJoinGroups   bool `json:"can_join_groups"`
		CanReadAll      bool `json:"can_read_all_group_messages"`
		SupportsInline  bool `json:"supports_inline_queries"`
		HasTopicsInside bool `json:"has_topics_enabled"`
	}{User: s.bot, CanJoinGroups: true, HasTopicsInside: true}
}

// SetWebhook makes the bot have a webhook, which excludes polling, or not.
func (s *Server) SetWebhook(on bool) {
	s.mu.Lock()
	s.webhook = on
	s.mu.Unlock()
	if on {
		s.terminate("Conflict: terminated by setWebhook request")
	}
}

func (s *Server) hasWebhook() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.webhook
}

func (s *Server) webhookInfo() response {
	info := struct {
		URL     string `json:"url"`
		Custom  bool   `json:"has_custom_certificate"`
		Pending int    `json:"pending_update_count"`
	}{Pending: s.pending()}
	if s.hasWebhook() {
		info.URL = "https://bot.example/hook"
	}
	return ok(info)
}

// setMyCommands holds to "commands: at most 100; command: 1-32 characters,
// lowercase English letters, digits and underscores; description: 1-256".
func setMyCommands(p params) response {
	var commands []struct {
		Command     string `json:"command"`
		Description string `json:"description"`
	}
	if err := json.Unmarshal([]byte(p.get("commands")), &commands); err != nil {
		return badRequest("can't parse commands JSON object")
	}
	if len(commands) > 100 {
		return badRequest("BOT_COMMANDS_TOO_MUCH")
	}
	for _, c := range commands {
		if n := len(c.Command); n < 1 || n > 32 || strings.Trim(c.Command, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return badRequest("BOT_COMMAND_INVALID")
		}
		if n := len(c.Description); n < 1 || n > 256 {
			return badRequest("BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	return ok(true)
}
