package providers

import "time"

// cooldown is how long something that failed, a model or a key, is left alone.
// The zero value is something that works. Its owner guards it.
type cooldown struct {
	err      *Error // why; nil while it works
	failed   time.Time
	until    time.Time
	failures int  // in a row, not counting those within one pause
	probing  bool // one request is finding out whether it works again
}

// ready reports whether it may be asked now. After a pause only one request at a
// time may, until it is known to work.
func (c *cooldown) ready(now time.Time) bool {
	return c.err == nil || !c.probing && !now.Before(c.until)
}

// begin reports whether it may be asked now, by a caller who then does.
func (c *cooldown) begin(now time.Time) bool {
	ok := c.ready(now)
	if ok && c.err != nil {
		c.probing = true
	}
	return ok
}

// kind is why it is left alone, "" if it works.
func (c *cooldown) kind() ErrorKind {
	if c.err == nil {
		return ""
	}
	return c.err.Kind
}

// fail notes a failure. Many requests that fail together count once. The
// service's own word on when to come back holds, up to an hour: then it is asked
// whether that was meant.
func (c *cooldown) fail(now time.Time, err *Error) {
	first, longest := pauses(err.Kind)
	if c.failures == 0 || !now.Before(c.until) {
		c.failures++
	}
	pause := min(first<<min(c.failures-1, 10), longest)
	if err.RetryAfter > 0 {
		pause = min(err.RetryAfter, time.Hour)
	}
	c.err, c.failed, c.probing = err, now, false
	if until := now.Add(pause); until.After(c.until) {
		c.until = until
	}
}

// succeed notes that a request begun at a time was answered. One that was under
// way when another failed says nothing.
func (c *cooldown) succeed(begun time.Time) {
	if !begun.Before(c.failed) {
		*c = cooldown{}
	}
}

// pauses is how long the first pause is for a kind of failure, and the longest;
// 0 for one that is not the model's fault. Whoever has refused a key will not
// take it in a minute; a busy service may.
func pauses(kind ErrorKind) (first, longest time.Duration) {
	switch kind {
	case KindAuth, KindBilling:
		return 10 * time.Minute, time.Hour
	case KindRateLimit:
		return 5 * time.Second, 5 * time.Minute
	case KindOverloaded, KindTimeout, KindUnreachable:
		return 5 * time.Second, 2 * time.Minute
	case KindContextOverflow, KindInvalidRequest:
	}
	return 0, 0
}
