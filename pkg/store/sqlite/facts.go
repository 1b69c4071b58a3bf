package sqlite

import "sync"

// mostKnown is how many facts are kept in memory.
const mostKnown = 4096

// facts keeps the facts that were read last, also those that are not there:
// every turn asks for its conversation's time zone, which most have never set.
// Like tails, it is brought up to date by the writer.
type facts struct {
	mu sync.Mutex // taken by whoever reads a fact, and by the writer
	m  map[string]*fact
}

type fact struct {
	value string
	read  bool // false: it is being read
}

// find returns the value of a key, if it is known. Otherwise the caller reads it
// and hands it, together with f, to fill.
func (fs *facts) find(key string) (value string, f *fact) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f = fs.m[key]; f != nil && f.read {
		return f.value, nil
	}
	if fs.m == nil || len(fs.m) >= mostKnown {
		fs.m = make(map[string]*fact)
	}
	f = &fact{}
	fs.m[key] = f
	return "", f
}

// fill notes what was read, unless the fact has changed since find.
func (fs *facts) fill(f *fact, value string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.value, f.read = value, true
}

// update follows changes that are committed, in their order.
func (fs *facts) update(jobs []*job) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, j := range jobs {
		for _, changed := range j.change.facts {
			f := fs.m[changed.Key]
			switch {
			case f == nil:
			case f.read:
				f.value = changed.Value
			default: // whoever reads it may have read too early
				delete(fs.m, changed.Key)
			}
		}
	}
}

// clear forgets what is known.
func (fs *facts) clear() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.m = nil
}
