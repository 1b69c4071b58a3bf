//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"os"
)

// pipe has an end for us and one for the process that is started.
type pipe struct{ ours, theirs *os.File }

// pipes are the files with which a process is started. After the first error it
// makes no more.
type pipes struct {
	list  []pipe
	other []*os.File
	err   error
}

// in returns a pipe the process reads from.
func (p *pipes) in() pipe {
	r, w := p.pair()
	return p.keep(pipe{ours: w, theirs: r})
}

// out returns a pipe the process writes to.
func (p *pipes) out() pipe {
	r, w := p.pair()
	return p.keep(pipe{ours: r, theirs: w})
}

func (p *pipes) pair() (r, w *os.File) {
	r, w, err := os.Pipe()
	p.err = errors.Join(p.err, err)
	return r, w
}

func (p *pipes) keep(q pipe) pipe {
	p.list, p.other = append(p.list, q), append(p.other, q.theirs)
	return q
}

// null is an input in which nothing is.
func (p *pipes) null() *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	p.err = errors.Join(p.err, err)
	p.other = append(p.other, f)
	return f
}

// closeOther closes what the process has taken over, or would have. It may be
// called twice.
func (p *pipes) closeOther() {
	for _, f := range p.other {
		_ = f.Close() // nothing was written to it here
	}
	p.other = nil
}

func (p *pipes) closeOurs() {
	for _, q := range p.list {
		_ = q.ours.Close() // nobody reads what was written to it
	}
}
