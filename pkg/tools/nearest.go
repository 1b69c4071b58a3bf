package tools

import (
	"cmp"
	"slices"
	"strings"
)

// maxCompared bounds how much of a name is compared, in bytes.
const maxCompared = 64

// distance says how unlike two names are: how many letters have to be added,
// left out, changed or swapped with the next to make one of the other, without
// regard to case and to what separates words. A name within the other is near.
func distance(a, b string) int {
	a, b = bare(a), bare(b)
	if a == b {
		return 0
	}
	if min(len(a), len(b)) >= 3 && (strings.Contains(a, b) || strings.Contains(b, a)) {
		return 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

var separators = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

func bare(name string) string {
	name = strings.ToLower(separators.Replace(name[:min(len(name), maxCompared)]))
	return name[:min(len(name), maxCompared)]
}

// alike reports whether one name may be a misspelling of the other.
func alike(a, b string) bool {
	return distance(a, b) <= max(1, min(len(a), len(b))/3)
}

// nearest sorts names by how much they are like name, the most alike first.
func nearest(name string, names []string) []string {
	far := make(map[string]int, len(names))
	for _, n := range names {
		far[n] = distance(name, n)
	}
	return slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Or(far[a]-far[b], longer(a, name)-longer(b, name), strings.Compare(a, b))
	})
}

func longer(a, b string) int { return max(len(a)-len(b), len(b)-len(a)) }

// meant returns the names that name may be a misspelling of, the most alike
// first, n at most.
func meant(name string, names []string, n int) []string {
	var near []string
	for _, c := range nearest(name, names) {
		if len(near) < n && alike(name, c) {
			near = append(near, c)
		}
	}
	return near
}
