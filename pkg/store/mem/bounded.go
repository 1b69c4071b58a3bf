package mem

import "hash/maphash"

// table is a map that gives its memory back after a flood: a Go map keeps the
// room of its largest size for ever. The zero value is empty.
type table[K comparable, V any] struct {
	m    map[K]V
	peak int
}

const floodSize = 1024

func (t *table[K, V]) get(k K) (V, bool) {
	v, ok := t.m[k]
	return v, ok
}

func (t *table[K, V]) set(k K, v V) {
	if t.m == nil {
		t.m = make(map[K]V)
	}
	t.m[k] = v
	t.peak = max(t.peak, len(t.m))
}

func (t *table[K, V]) delete(k K) {
	delete(t.m, k)
	if len(t.m) == 0 && t.peak > floodSize {
		t.m, t.peak = nil, 0
	}
}

// window remembers values by a pair of strings: at least the newest size of
// them, at most twice as many. When the young generation is full it becomes the
// old one, and what the old one held is forgotten.
//
// It keeps 128-bit hashes under seeds of its own instead of the strings: a
// fraction of the memory, and two keys that meet are less likely than a broken
// memory chip.
type window[V any] struct {
	size       int
	seeds      [2]maphash.Seed
	young, old map[fingerprint]V
}

type fingerprint [2]uint64

func newWindow[V any](size int) window[V] {
	return window[V]{size: size, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

func (w *window[V]) fingerprint(a, b string) (f fingerprint) {
	key := [2]string{a, b}
	for i, seed := range w.seeds {
		f[i] = maphash.Comparable(seed, key)
	}
	return f
}

func (w *window[V]) get(a, b string) (V, bool) {
	f := w.fingerprint(a, b)
	if v, ok := w.young[f]; ok {
		return v, true
	}
	v, ok := w.old[f]
	return v, ok
}

// add remembers v and reports whether the key was new; if it was not, the first
// value stays.
func (w *window[V]) add(a, b string, v V) bool {
	f := w.fingerprint(a, b)
	if _, known := w.young[f]; known {
		return false
	}
	if _, known := w.old[f]; known {
		return false
	}
	if w.young == nil {
		w.young = make(map[fingerprint]V)
	}
	w.young[f] = v
	if len(w.young) >= w.size {
		w.old, w.young = w.young, nil
	}
	return true
}
