package tools

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

// Options configures a registry. The zero value is what NewToolRegistry uses.
type Options struct {
	// Logger hears of starts and ends (debug), of failures and of tools that
	// are registered in a doubtful way (warn), and of panics (error). nil
	// discards.
	Logger *slog.Logger
	// InstallAtRegister gives a legacy AsyncTool its callback when it is
	// registered, instead of at its first call that has one. A long-running
	// process wants it: nothing then writes to the tool while its goroutines
	// read.
	InstallAtRegister bool
	// AsyncTTL is how long a background task may take before it is given up; 0
	// is 30 minutes. A tool overrides it with AsyncTTL() time.Duration.
	AsyncTTL time.Duration
	// Redact takes the secrets out of a text. It has the last hand on what each
	// result says, to the model, the person and the log, that of background work
	// included; not on Data. It is called from any goroutine. nil: nothing is
	// taken out.
	Redact func(string) string
	// ToolTimeout is how long a call may take, 0 for as long as it likes. A loop
	// has its own, and a TimeoutTool before that.
	ToolTimeout time.Duration
	// LegacyWait is how long a call waits for a legacy tool that is busy; 0 is
	// 10 seconds.
	LegacyWait time.Duration
}

// ErrNotFound is in the Err of the result when no tool has the name.
var ErrNotFound = errors.New("tool not found")

// ToolRegistry holds tools by name and runs them. It is safe for concurrent
// use, also while loops run. Register an instance in one registry only: its
// lock and its background tasks belong to the registry. For a part of the
// tools see View.
type ToolRegistry struct {
	core  *core
	admit func(name string) bool // nil: every tool
	view  atomic.Pointer[table]  // what admit lets through
}

// core is what a registry and its views share.
type core struct {
	logger  *slog.Logger
	options Options
	stats   lockStats
	tasks   tasks

	mu        sync.Mutex // a registration touches several of these at once
	tools     map[string]*entry
	reserved  map[string]bool
	instances map[any]*instance

	middleware []Middleware
	chain      atomic.Pointer[Handler] // of middleware; nil: none

	current atomic.Pointer[table] // nil: build it from tools
}

// table is the tools at one moment, never changed once built.
type table struct {
	base   *table // the table a view was cut from
	byName map[string]*entry
	sorted []*entry
	defs   []providers.ToolDefinition
	digest func() string // of defs, see providers.ToolsDigest; made when it is first asked for
}

// NewToolRegistry returns an empty registry that logs nothing.
func NewToolRegistry() *ToolRegistry { return NewToolRegistryWith(Options{}) }

// NewToolRegistryWith returns an empty registry.
func NewToolRegistryWith(o Options) *ToolRegistry {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.AsyncTTL <= 0 {
		o.AsyncTTL = 30 * time.Minute
	}
	if o.LegacyWait <= 0 {
		o.LegacyWait = 10 * time.Second
	}
	c := &core{
		logger:    o.Logger,
		options:   o,
		tools:     make(map[string]*entry),
		reserved:  make(map[string]bool),
		instances: make(map[any]*instance),
	}
	c.tasks.init()
	return &ToolRegistry{core: c}
}

// Register adds a tool, or replaces the one of the same name and logs that.
// Name, Description and Parameters are read now and not again. A tool without a
// name is not added, and a reserved name keeps what it has; both are logged.
// On a view it acts on the registry behind it.
func (r *ToolRegistry) Register(tool Tool) {
	e, err := newEntry(tool)
	if err != nil {
		r.core.logger.Error("tool not registered", "err", err)
		return
	}
	if err := r.core.add(e, true); err != nil {
		r.core.logger.Error("tool not registered", "tool", e.name, "err", err)
	}
}

// RegisterTool is the strict form of Register. It refuses a nil tool, a name
// that is not 1 to 64 characters of [A-Za-z0-9_-], that is taken or reserved, an
// empty description, and a schema that is not a valid JSON Schema of an object.
func (r *ToolRegistry) RegisterTool(tool Tool) error {
	e, err := newEntry(tool)
	if err != nil {
		return err
	}
	if err := e.strict(); err != nil {
		return fmt.Errorf("tools: register %q: %w", e.name, err)
	}
	if err := r.core.add(e, false); err != nil {
		return fmt.Errorf("tools: register %q: %w", e.name, err)
	}
	return nil
}

// Reserve protects names: what is registered under them can no longer be
// replaced or removed, and a name that is still free stays free.
func (r *ToolRegistry) Reserve(names ...string) {
	r.core.mu.Lock()
	defer r.core.mu.Unlock()
	for _, n := range names {
		r.core.reserved[n] = true
	}
}

// Unregister removes a tool, unless its name is reserved. Calls that run go on.
func (r *ToolRegistry) Unregister(name string) {
	c := r.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reserved[name] {
		c.logger.Error("tool not removed, its name is reserved", "tool", name)
		return
	}
	if e := c.tools[name]; e != nil {
		delete(c.tools, name)
		c.release(e)
		c.current.Store(nil)
	}
}

// View returns the same registry narrowed to the tools whose name filter
// admits: for a sub-agent, or for somebody who may not use them all. It follows
// every later registration and shares locks, background tasks and limits.
// filter is asked once per tool after each registration, so it must be a pure
// function of the name; nil admits every tool.
func (r *ToolRegistry) View(filter func(name string) bool) *ToolRegistry {
	v := &ToolRegistry{core: r.core, admit: r.admit}
	switch {
	case filter == nil:
	case r.admit == nil:
		v.admit = filter
	default:
		outer := r.admit
		v.admit = func(name string) bool { return outer(name) && filter(name) }
	}
	return v
}

// Logger returns Options.Logger, one that discards if that is nil.
func (r *ToolRegistry) Logger() *slog.Logger { return r.core.logger }

// Idempotent reports whether the tool of that name says that it may be run
// twice for one call; see IdempotentTool.
func (r *ToolRegistry) Idempotent(name string) bool {
	e := r.table().byName[name]
	return e != nil && e.repeats
}

// Get finds a tool by name.
func (r *ToolRegistry) Get(name string) (Tool, bool) {
	if e := r.table().byName[name]; e != nil {
		return e.tool, true
	}
	return nil, false
}

// List returns the names of all tools, sorted.
func (r *ToolRegistry) List() []string {
	t := r.table()
	names := make([]string, len(t.sorted))
	for i, e := range t.sorted {
		names[i] = e.name
	}
	return names
}

// Count returns how many tools there are.
func (r *ToolRegistry) Count() int { return len(r.table().sorted) }

// GetDefinitions describes all tools in the form of ToolToSchema, sorted by
// name. The maps under "parameters" are shared: read them only.
func (r *ToolRegistry) GetDefinitions() []map[string]interface{} {
	t := r.table()
	defs := make([]map[string]interface{}, len(t.sorted))
	for i, e := range t.sorted {
		f := e.def.Function
		defs[i] = schemaMap(f.Name, f.Description, f.Parameters)
	}
	return defs
}

// ToProviderDefs describes all tools to a provider, sorted by name, so that the
// same tools always make the same bytes. The schemas are shared: read them only.
func (r *ToolRegistry) ToProviderDefs() []providers.ToolDefinition {
	return slices.Clone(r.table().defs)
}

// GetSummaries returns a line "- `name` - description" per tool, sorted by name.
func (r *ToolRegistry) GetSummaries() []string {
	t := r.table()
	lines := make([]string, len(t.sorted))
	for i, e := range t.sorted {
		lines[i] = "- `" + e.name + "` - " + e.def.Function.Description
	}
	return lines
}

// table returns the tools of this registry or view.
func (r *ToolRegistry) table() *table {
	whole := r.core.whole()
	if r.admit == nil {
		return whole
	}
	if t := r.view.Load(); t != nil && t.base == whole {
		return t
	}
	var admitted []*entry
	for _, e := range whole.sorted {
		if r.admit(e.name) {
			admitted = append(admitted, e)
		}
	}
	t := newTable(whole, admitted)
	r.view.Store(t)
	return t
}

func newTable(base *table, sorted []*entry) *table {
	t := &table{
		base:   base,
		sorted: sorted,
		byName: make(map[string]*entry, len(sorted)),
		defs:   make([]providers.ToolDefinition, len(sorted)),
	}
	for i, e := range sorted {
		t.byName[e.name] = e
		t.defs[i] = e.def
	}
	t.digest = sync.OnceValue(func() string { return providers.ToolsDigest(t.defs) })
	return t
}

// whole returns the table of every tool.
func (c *core) whole() *table {
	if t := c.current.Load(); t != nil {
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.current.Load(); t != nil {
		return t
	}
	sorted := slices.SortedFunc(maps.Values(c.tools), func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	t := newTable(nil, sorted)
	c.current.Store(t)
	return t
}

// add puts an entry in.
func (c *core) add(e *entry, replace bool) error {
	if err := c.put(e, replace); err != nil {
		return err
	}
	c.installEarly(e)
	if e.holdsUntilDone() {
		c.logger.Warn("tool has both SetContext and SetCallback: it serves one conversation at a time until its callback; register it with tools.PerCall", "tool", e.name)
	}
	return nil
}

func (c *core) put(e *entry, replace bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reserved[e.name] {
		return errors.New("the name is reserved")
	}
	old := c.tools[e.name]
	if old != nil && !replace {
		return errors.New("the name is taken")
	}
	c.adopt(e)
	c.tools[e.name] = e
	c.current.Store(nil)
	if old != nil {
		c.release(old)
		c.logger.Warn("tool replaced", "tool", e.name)
	}
	return nil
}
