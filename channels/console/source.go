package console

import (
	"bufio"
	"context"
	"io"
	"os"
	"time"
)

// maxLine is the longest line that is read. A longer one ends the input.
const maxLine = 1 << 20

// source reads lines in a goroutine of its own, because a read cannot be given
// up and the channel has to go on.
type source struct {
	in    io.Reader
	lines chan string
	quit  chan struct{}
	gone  chan struct{} // closed when the goroutine has ended; err is set then
	err   error
}

func startReading(in io.Reader) *source {
	s := &source{in: in, lines: make(chan string), quit: make(chan struct{}), gone: make(chan struct{})}
	go s.read()
	return s
}

func (s *source) read() {
	defer close(s.gone)
	scanner := bufio.NewScanner(s.in)
	scanner.Buffer(make([]byte, 0, 4<<10), maxLine)
	for scanner.Scan() {
		select {
		case s.lines <- scanner.Text():
		case <-s.quit:
			return
		}
	}
	s.err = scanner.Err()
	if s.err == nil {
		s.err = io.EOF
	}
}

// line returns the next line. The error is io.EOF at the end of the input, what
// reading failed with, or ctx's own.
func (s *source) line(ctx context.Context) (string, error) {
	select {
	case l := <-s.lines:
		return l, nil
	case <-s.gone:
		return "", s.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// lineWithin returns the next line if it comes in time. The end of the input
// shows at the next call of line.
func (s *source) lineWithin(ctx context.Context, wait time.Duration) (string, bool) {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case l := <-s.lines:
		return l, true
	case <-s.gone:
	case <-late.C:
	case <-ctx.Done():
	}
	return "", false
}

// stop ends the goroutine, if its read can be interrupted, and waits for it.
func (s *source) stop() {
	close(s.quit)
	if s.interrupt() {
		<-s.gone
	}
}

// interrupt ends a read under way and reports whether it surely did.
func (s *source) interrupt() bool {
	select {
	case <-s.gone:
		return true
	default:
	}
	if d, ok := s.in.(interface{ SetReadDeadline(t time.Time) error }); ok && d.SetReadDeadline(time.Unix(1, 0)) == nil {
		return true
	}
	if _, file := s.in.(*os.File); file {
		return false // closing a terminal does not wake its reader
	}
	if c, ok := s.in.(io.Closer); ok {
		return c.Close() == nil
	}
	return false
}
