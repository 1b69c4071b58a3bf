// Package discordtest is a strict fake of Discord: the REST API (v9 and v10)
// and the gateway socket, as far as a chat bot meets them. It refuses what
// Discord refuses, and each refusal names the rule of the documentation
// (docs.discord.com/developers) that it follows.
//
// A Server does no I/O of its own: it is an http.Handler. Serve puts it on any
// listener; Listen and Pipe do that for a loopback port and for memory.
//
//	srv := discordtest.New(discordtest.Options{})
//	base, stop, err := srv.Listen()
//	defer stop()
//	ann := srv.AddUser("ann", "Ann")
//	dm := srv.AddDM(ann)
//	srv.Say(dm, ann, "hello")
//	sent, err := srv.WaitSent(ctx, 1)
package discordtest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Options set a Server up. The zero value is a bot that is allowed to read
// message content and is never throttled.
type Options struct {
	Token   string // the bot's token; default Token
	BotName string // default "dragoman"

	// Refused are the privileged intents that were not switched on for the
	// application; asking for one closes the socket with 4014.
	Refused int
	// Heartbeat is the interval asked for in HELLO; default 41.25 s.
	Heartbeat time.Duration
	// PerChannel and Per enforce a bucket of so many messages per channel
	// (Discord: about 5 in 5 s). 0 enforces nothing.
	PerChannel int
	Per        time.Duration
	// Replay is how many events a session remembers for RESUME; default 1000.
	Replay int
	// History is how many messages a channel remembers; default 100.
	History int
	// NoRecord keeps neither Sent nor Calls, for long load runs; OnSend is
	// then the way to see messages.
	NoRecord bool
	// OnSend is called for every message the bot creates, from the goroutine
	// that serves the request, before it is answered. It may call the server's
	// other methods.
	OnSend func(Sent)
}

// Token is the bot token when Options name none.
const Token = "MTAwMDAw.fake.discord-test-token"

// Server is the fake. All its methods are safe for concurrent use.
type Server struct {
	opts     Options
	upgrader websocket.Upgrader
	sockets  sync.WaitGroup // one per gateway connection's goroutine

	mu           sync.Mutex // guards everything below; nothing blocks while it is held
	changed      chan struct{}
	lastID       int64
	token        string
	bot          User
	users        map[string]User
	guilds       map[string]string // id -> name
	order        []string          // guild ids in the order they were added
	channels     map[string]*channel
	dms          map[string]string // user id -> channel id
	sessions     map[string]*session
	conns        map[*conn]struct{}
	nonces       [2]map[string]*Message // this and the previous few minutes
	noncesAt     time.Time
	faults       faults
	sent         []Sent
	calls        []Call
	typing       map[string]int
	identify     int // IDENTIFY packets accepted
	resumed      int // RESUME packets accepted
	resumedThere int // of them, at the address READY named
	heartbeat    int // heartbeats received
	down         bool
}

// channel is a channel with what the fake remembers of it.
type channel struct {
	Channel
	messages []*Message // oldest first, at most Options.History
	used     int        // messages in the current rate-limit window
	resetAt  time.Time
	refuse   *apiError
	reads    []response // answers for the next looks at its messages, instead of the real one
	quiet    bool       // GUILD_CREATE does not list it
}

// New returns a fake without guilds, users or channels.
func New(opts Options) *Server {
	if opts.Token == "" {
		opts.Token = Token
	}
	if opts.BotName == "" {
		opts.BotName = "dragoman"
	}
	if opts.Heartbeat == 0 {
		opts.Heartbeat = 41250 * time.Millisecond
	}
	if opts.Replay == 0 {
		opts.Replay = 1000
	}
	if opts.History == 0 {
		opts.History = 100
	}
	s := &Server{
		opts:     opts,
		token:    opts.Token,
		changed:  make(chan struct{}),
		lastID:   1 << 40,
		users:    map[string]User{},
		guilds:   map[string]string{},
		channels: map[string]*channel{},
		dms:      map[string]string{},
		sessions: map[string]*session{},
		conns:    map[*conn]struct{}{},
		nonces:   [2]map[string]*Message{{}, {}},
		typing:   map[string]int{},
	}
	s.upgrader.CheckOrigin = func(*http.Request) bool { return true }
	s.bot = User{ID: s.nextID(), Username: opts.BotName, Discriminator: "0042", Bot: true}
	s.users[s.bot.ID] = s.bot
	return s
}

// epoch is the first millisecond of 2015, where Discord's ids begin.
const epoch = 1420070400000

// nextID makes a snowflake: milliseconds since the epoch, then a counter. The
// caller holds mu, or nobody else has s yet.
func (s *Server) nextID() string {
	id := max(s.lastID+1, (time.Now().UnixMilli()-epoch)<<22)
	s.lastID = id
	return strconv.FormatInt(id, 10)
}

// notify wakes everybody who waits for a change. The caller holds mu.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Bot returns the bot's own user.
func (s *Server) Bot() User { return s.bot }

// Mention is how a text names a user: "<@id>".
func Mention(u User) string { return "<@" + u.ID + ">" }

// AddUser adds a person.
func (s *Server) AddUser(username, displayName string) User {
	return s.addUser(username, displayName, false)
}

// AddBot adds another bot.
func (s *Server) AddBot(username string) User { return s.addUser(username, "", true) }

func (s *Server) addUser(username, displayName string, bot bool) User {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := User{ID: s.nextID(), Username: username, Discriminator: "0", Bot: bot}
	if displayName != "" {
		u.GlobalName = &displayName
	}
	s.users[u.ID] = u
	return u
}

// AddGuild adds a server the bot is a member of and returns its id.
func (s *Server) AddGuild(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextID()
	s.guilds[id] = name
	s.order = append(s.order, id)
	s.dispatch("GUILD_CREATE", s.guildObject(id), IntentGuilds)
	return id
}

// AddChannel adds a text channel to a guild and returns its id.
func (s *Server) AddChannel(guildID, name string) string {
	return s.addChannel("CHANNEL_CREATE", Channel{Type: ChannelGuildText, GuildID: guildID, Name: name})
}

// AddForum adds a forum channel to a guild and returns its id; its posts are
// threads.
func (s *Server) AddForum(guildID, name string) string {
	return s.addChannel("CHANNEL_CREATE", Channel{Type: ChannelForum, GuildID: guildID, Name: name})
}

// AddThread starts a public thread in a guild channel and returns its id.
func (s *Server) AddThread(parentID, name string) string {
	return s.addChannel("THREAD_CREATE", s.thread(parentID, name))
}

// AddQuietThread is AddThread for a thread nobody is told of: it stands in no
// GUILD_CREATE and no THREAD_CREATE, like one that was archived and is written
// to again.
func (s *Server) AddQuietThread(parentID, name string) string {
	return s.addChannel("", s.thread(parentID, name))
}

func (s *Server) thread(parentID, name string) Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Channel{Type: ChannelPublicThread, GuildID: s.channels[parentID].GuildID, ParentID: parentID, Name: name}
}

func (s *Server) addChannel(event string, c Channel) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.ID = s.nextID()
	s.channels[c.ID] = &channel{Channel: c, quiet: event == ""}
	if parent := s.channels[c.ParentID]; parent != nil && parent.Type == ChannelForum {
		parent.LastMessageID = &c.ID // "last_message_id": or thread for forums
	}
	if event != "" {
		c.NewlyCreated = event == "THREAD_CREATE"
		s.dispatch(event, c, IntentGuilds)
	}
	return c.ID
}

// AddDM opens a private channel with a person and returns its id. Like
// Discord, it tells the bot nothing until something is written there.
func (s *Server) AddDM(u User) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openDM(u)
}

func (s *Server) openDM(u User) string {
	if id, ok := s.dms[u.ID]; ok {
		return id
	}
	id := s.nextID()
	s.channels[id] = &channel{Channel: Channel{ID: id, Type: ChannelDM, Recipients: []User{u}}}
	s.dms[u.ID] = id
	return id
}

// guildObject is what GUILD_CREATE says of a guild: all channels, even those the
// bot may not look into, and the threads it may. "guild_id" may be missing for
// channels in it, and is. The caller holds mu.
func (s *Server) guildObject(id string) guild {
	g := guild{ID: id, Name: s.guilds[id], MemberCount: 2, Channels: []Channel{}, Threads: []Channel{}, Members: []any{}, Roles: []any{}}
	for _, c := range s.channels {
		if c.GuildID != id || c.quiet {
			continue
		}
		listed := c.Channel
		listed.GuildID = ""
		switch c.Type {
		case ChannelPublicThread, ChannelPrivateThread:
			if c.refuse == nil {
				g.Threads = append(g.Threads, listed)
			}
		default:
			g.Channels = append(g.Channels, listed)
		}
	}
	return g
}

// Say writes content as author and returns the message's id. The users named
// as <@id> are mentioned, like in the real client.
func (s *Server) Say(channelID string, author User, content string) string {
	return s.Post(channelID, Message{Author: &author, Content: content})
}

// Reply is Say in answer to another message, which it quotes without a ping.
func (s *Server) Reply(channelID string, author User, to, content string) string {
	return s.Post(channelID, Message{
		Author: &author, Content: content, Type: MessageReply,
		MessageReference: &Reference{MessageID: to, ChannelID: channelID},
	})
}

// Post writes any message and returns its id. ID, ChannelID, GuildID and
// Timestamp are filled in when empty, mentions are read from the content, and
// a reference to a message the channel remembers is resolved.
func (s *Server) Post(channelID string, m Message) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil {
		return ""
	}
	m.Mentions = append(m.Mentions, s.mentioned(m.Content)...)
	if r := m.MessageReference; r != nil && r.Type == 0 && m.ReferencedMessage == nil {
		m.ReferencedMessage = c.find(r.MessageID)
	}
	s.store(c, &m)
	s.dispatchMessage("MESSAGE_CREATE", c, &m)
	return m.ID
}

// mentioned lists the users that content names. The caller holds mu.
func (s *Server) mentioned(content string) []User {
	var users []User
	for rest := content; ; {
		_, after, ok := strings.Cut(rest, "<@")
		if !ok {
			return users
		}
		id, tail, ok := strings.Cut(after, ">")
		if !ok {
			return users
		}
		if u, known := s.users[strings.TrimPrefix(id, "!")]; known {
			users = append(users, u)
			rest = tail
			continue
		}
		rest = after
	}
}

// store fills m in and remembers it in its channel. The caller holds mu.
func (s *Server) store(c *channel, m *Message) {
	if m.ID == "" {
		m.ID = s.nextID()
	}
	if m.Timestamp == "" {
		m.Timestamp = timestamp(time.Now())
	}
	m.ChannelID = c.ID
	if m.MentionRoles == nil {
		m.MentionRoles = []string{}
	}
	if m.Mentions == nil {
		m.Mentions = []User{}
	}
	id := m.ID
	c.LastMessageID = &id
	if len(c.messages) >= s.opts.History {
		c.messages = append(c.messages[:0], c.messages[len(c.messages)-s.opts.History+1:]...)
	}
	c.messages = append(c.messages, m)
}

// find returns a message the channel remembers, nil if it does not.
func (c *channel) find(id string) *Message {
	for _, m := range slices.Backward(c.messages) {
		if m.ID == id {
			return m
		}
	}
	return nil
}
