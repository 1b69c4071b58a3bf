package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"
)

// soakResult is how memory and disk went over very many turns, at a steady pace:
// what is kept for a time is then always the same amount, and a file that never
// shrinks has its size early on.
//
// Growth is what the last half of the turns added, in per cent of what there was
// in the middle. It is told by the straight line that lies closest to all
// samples of that half: a single one depends on when the collector ran last and
// when the log was copied into the ledger.
type soakResult struct {
	Store   string      `json:"store"`
	Chats   int         `json:"chats"`
	Turns   int         `json:"turns"`
	Seconds float64     `json:"seconds"`
	Points  []soakPoint `json:"points"`
	Growth  soakGrowth  `json:"growth_percent"`
	Faults  faults      `json:"faults"`
}

// soakPoint is one look at the daemon.
type soakPoint struct {
	Turns int `json:"turns"`
	memory
	Disk float64 `json:"disk_mb"` // all files in its data folder
}

type soakGrowth struct {
	RSS  float64 `json:"rss"`
	Anon float64 `json:"rss_anon"`
	Disk float64 `json:"disk"`
}

const (
	soakPace    = 500 // turns a second
	soakPadding = 400 // bytes that each message of a chat has beside its token
	soakLook    = 100 * time.Millisecond
	soakPoints  = 10 // of the report
	mostGrowth  = 5  // per cent
)

// bad reports whether the daemon would grow for ever, or did what it must not.
func (r *soakResult) bad() bool {
	return r.Faults.any() || max(r.Growth.RSS, r.Growth.Anon, r.Growth.Disk) > mostGrowth
}

// soaks runs very many turns with each ledger. What is over is kept for a tenth
// of the time that takes.
func (l *loadtest) soaks(ctx context.Context) error {
	keep := max(time.Duration(l.soak)*time.Second/soakPace/10, time.Second)
	l.retention = fmt.Sprintf("{journal: %[1]s, dedupe: %[2]s, history: %[1]s}", keep, keep*3/2)
	for _, store := range l.stores {
		l.store = store
		l.note("%d turns of %d chats, %s", l.soak, l.chats, store)
		res, err := l.runSoak(ctx)
		if err != nil {
			return fmt.Errorf("soak: %w", err)
		}
		l.report.Soaks = append(l.report.Soaks, res)
	}
	return nil
}

func (l *loadtest) runSoak(ctx context.Context) (res soakResult, err error) {
	r, err := newRig(ctx, rigConfig{telegram: l.chats, rounds: 1, padding: soakPadding})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	h, err := l.newHome(ctx, r, false, false)
	if err != nil {
		return res, err
	}
	s, err := h.start(ctx)
	if err != nil {
		return res, err
	}
	res = soakResult{Store: l.store, Chats: l.chats, Turns: l.soak}
	began := time.Now()
	looks, err := l.driveSoak(ctx, s, filepath.Join(h.dir, "data"))
	res.Seconds = time.Since(began).Seconds()
	if err = errors.Join(err, s.stop()); err != nil {
		return res, err
	}
	res.Faults, _ = r.book.close()
	for n := 1; n <= soakPoints; n++ {
		res.Points = append(res.Points, at(looks, n*l.soak/soakPoints))
	}
	res.Growth = soakGrowth{
		RSS:  growth(looks, func(p soakPoint) float64 { return p.RSS }),
		Anon: growth(looks, func(p soakPoint) float64 { return p.Anon }),
		Disk: growth(looks, func(p soakPoint) float64 { return p.Disk }),
	}
	return res, nil
}

// driveSoak lets the chats write until there were enough turns, and looks at the
// daemon meanwhile.
func (l *loadtest) driveSoak(ctx context.Context, s *subject, data string) (looks []soakPoint, err error) {
	var left atomic.Int64
	left.Store(int64(l.soak))
	pace := rate.NewLimiter(soakPace, 1)
	s.rig.book.count(true)
	var chats sync.WaitGroup
	for i := range s.rig.say {
		chats.Go(func() {
			for left.Add(-1) >= 0 {
				if pace.Wait(ctx) != nil || !s.rig.askAndWait(ctx, i) {
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		chats.Wait()
		close(over)
	}()
	defer func() {
		left.Store(0)
		<-over
	}()
	for {
		select {
		case <-over:
			return looks, ctx.Err()
		default:
		}
		if err := pause(ctx, s, soakLook); err != nil {
			return nil, err
		}
		look := soakPoint{Turns: s.rig.book.count(true)}
		if look.memory, err = s.memory(); err != nil {
			return nil, err
		}
		if look.Disk, err = diskUse(data); err != nil {
			return nil, err
		}
		looks = append(looks, look)
	}
}

// diskUse returns the size of all files in a folder, in MB.
func diskUse(dir string) (mb float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile, or never made
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			mb += float64(info.Size()) / (1 << 20)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure the data folder: %w", err)
	}
	return mb, nil
}

// at returns the first look after so many turns, or the last one of all.
func at(looks []soakPoint, turns int) (p soakPoint) {
	for _, p = range looks {
		if p.Turns >= turns {
			break
		}
	}
	return p
}

// growth returns what the last half of the turns added to a value, in per cent
// of what it was in the middle; see soakResult.
func growth(looks []soakPoint, value func(soakPoint) float64) float64 {
	if len(looks) == 0 {
		return 0
	}
	half := float64(looks[len(looks)-1].Turns) / 2
	var n, sx, sy, sxx, sxy float64
	for _, p := range looks {
		if x := float64(p.Turns) - half; x >= 0 {
			y := value(p)
			n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
		}
	}
	spread := n*sxx - sx*sx
	if spread == 0 {
		return 0
	}
	slope := (n*sxy - sx*sy) / spread
	middle := (sy - slope*sx) / n
	if middle <= 0 {
		return 0
	}
	return 100 * slope * half / middle
}

// pad makes so many bytes that were never seen before.
func pad(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteByte(' ')
		b.WriteString(rand.Text())
	}
	return b.String()
}

// soaked writes how memory and disk went.
func (r *report) soaked(out io.Writer) {
	for _, s := range r.Soaks {
		fmt.Fprintf(out, "soak, %s: %d turns of %d chats in %.0f s\n", s.Store, s.Turns, s.Chats, s.Seconds)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "turns\tVmRSS MB\tRssAnon MB\tdisk MB\tthreads\t")
		for _, p := range s.Points {
			fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t%d\t\n", p.Turns, p.RSS, p.Anon, p.Disk, p.Threads)
		}
		_ = w.Flush() // as little to do about it as about any other print
		verdict := "a plateau"
		if s.bad() {
			verdict = "FAILED"
		}
		fmt.Fprintf(out, "the last half adds %+.1f %% to VmRSS, %+.1f %% to RssAnon, %+.1f %% to the disk; %s: %s\n",
			s.Growth.RSS, s.Growth.Anon, s.Growth.Disk, s.Faults, verdict)
	}
}
