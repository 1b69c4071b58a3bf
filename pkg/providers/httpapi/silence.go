package httpapi

import "time"

// keptAlive is for how many limits a service may only say that it is still there.
const keptAlive = 3

// Silence ends a request whose answer in pieces does not come. It belongs to one
// goroutine.
type Silence struct {
	limit time.Duration
	timer *time.Timer
	piece time.Time // when the last one came
}

// NewSilence returns one that calls end, on another goroutine, when nothing has
// come for as long as limit, or nothing but signs for three times as long.
func NewSilence(limit time.Duration, end func()) *Silence {
	return &Silence{limit: limit, timer: time.AfterFunc(limit, end), piece: time.Now()}
}

// Piece says that a part of the answer has come.
func (s *Silence) Piece() {
	s.piece = time.Now()
	s.timer.Reset(s.limit)
}

// Sign says that something has come that is no part of the answer.
func (s *Silence) Sign() {
	s.timer.Reset(min(s.limit, time.Until(s.piece.Add(keptAlive*s.limit))))
}

// Within bounds what is still waited for when the answer is there.
func (s *Silence) Within(d time.Duration) { s.timer.Reset(d) }

// Stop ends it.
func (s *Silence) Stop() { s.timer.Stop() }
