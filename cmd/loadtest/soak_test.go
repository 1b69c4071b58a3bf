package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A plateau is one however it is reached and however restless it is; what goes
// on growing is found.
func TestGrowth(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		value func(turns float64) float64
		want  float64
	}{
		"nothing":       {func(float64) float64 { return 0 }, 0},
		"level":         {func(float64) float64 { return 40 }, 0},
		"rises early":   {func(n float64) float64 { return min(40, n/1000) }, 0},
		"restless":      {func(float64) float64 { return 40 + 8*noise.Float64() }, 0},
		"sawtooth":      {func(n float64) float64 { return 40 + math.Mod(n, 3000)/500 }, 0},
		"leaks":         {func(n float64) float64 { return 40 + n/10_000 }, 100 * 5.0 / 45},
		"restless leak": {func(n float64) float64 { return 40 + n/10_000 + 8*noise.Float64() }, 100 * 5.0 / 49},
		"shrinks":       {func(n float64) float64 { return 50 - n/10_000 }, -100 * 5.0 / 45},
	} {
		var looks []soakPoint
		for n := range 1000 {
			looks = append(looks, soakPoint{Turns: 100 * (n + 1), Disk: c.value(100 * float64(n+1))})
		}
		if got := growth(looks, func(p soakPoint) float64 { return p.Disk }); math.Abs(got-c.want) > 2 {
			t.Errorf("%s: %.1f %%, not %.1f %%", name, got, c.want)
		}
	}
	if growth(nil, func(soakPoint) float64 { return 1 }) != 0 {
		t.Error("nothing grows out of no looks")
	}
}

func TestSoakReport(t *testing.T) {
	good := soakResult{Store: storeFull, Turns: 100, Points: []soakPoint{{Turns: 100, Disk: 7.25}}, Growth: soakGrowth{RSS: 4.9, Disk: -3}}
	leaky := good
	leaky.Growth.Disk = 5.1
	faulty := good
	faulty.Faults.Lost = 1
	for want, s := range map[string]soakResult{"a plateau": good, "+5.1 % to the disk": leaky, "1 lost": faulty} {
		r := &report{Soaks: []soakResult{s}}
		var out strings.Builder
		r.table(&out)
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "7.2") {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
		if r.faulty() != (want != "a plateau") || r.faulty() != strings.Contains(out.String(), "FAILED") {
			t.Errorf("%s: it fails: %v", want, r.faulty())
		}
	}
}

func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "a/b/y"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if mb, err := diskUse(dir); err != nil || mb != 2 {
		t.Errorf("%v MB, %v", mb, err)
	}
	if mb, err := diskUse(filepath.Join(dir, "none")); err != nil || mb != 0 {
		t.Errorf("%v MB of nothing, %v", mb, err)
	}
}

func TestSoakCommandLine(t *testing.T) {
	for args, want := range map[string]string{"": storeFull, "-soak 9": storeFull, "-soak 9 -store memory": storeMemory, "-soak 9 -store memory,fast": storeFast} {
		l := &loadtest{errOut: &strings.Builder{}}
		if err := l.parse(strings.Fields(args)); err != nil || l.store != want {
			t.Errorf("%q runs with %q, %v", args, l.store, err)
		}
	}
}
