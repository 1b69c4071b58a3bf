package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is what is wrong with a configuration, one problem a line, each with
// its place. It holds no secrets.
type Error struct {
	Problems []string
}

func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }

func newError(format string, args ...any) error {
	return &Error{Problems: []string{fmt.Sprintf(format, args...)}}
}

type problem struct {
	line int
	text string
}

// add reports a problem with the value at path.
func (d *decoder) add(path, format string, args ...any) {
	line, text := d.doc.placed(d.doc.places[path])
	if path != "" {
		text += path + ": "
	}
	d.problems = append(d.problems, problem{line, text + fmt.Sprintf(format, args...)})
}

func (d *decoder) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	e := &Error{}
	for _, p := range d.problems {
		e.Problems = append(e.Problems, p.text)
	}
	return e
}

// nearest returns the known word that word was probably meant to be, or "".
func nearest(word string, known []string) string {
	best, bestDist := "", len(word)/3+2
	for _, k := range known {
		if dist := distance(strings.ToLower(word), k); dist < bestDist && dist < len(k) {
			best, bestDist = k, dist
		}
	}
	return best
}

// distance counts the letters to insert, remove, replace or swap with their
// neighbour to get from a to b.
func distance(a, b string) int {
	var before []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev = prev, cur
	}
	return prev[len(b)]
}
