package builtin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// dueTime reads when a reminder is due: after delay, or at a time in now's
// zone. Its errors are sentences for the model.
func dueTime(delay, at string, now time.Time) (time.Time, error) {
	var due time.Time
	var err error
	switch {
	case delay != "" && at != "":
		return due, errors.New("give either delay or at, not both")
	case delay != "":
		due, err = after(delay, now)
	case at != "":
		due, err = clock(at, now)
	default:
		return due, errors.New(`say when: give delay ("10m") or at ("18:30")`)
	}
	switch {
	case err != nil:
		return due, err
	case !due.After(now):
		return due, fmt.Errorf("%s has passed; it is %s now", due.Format(reminderFormat), now.Format(reminderFormat))
	case due.After(now.AddDate(maxYears, 0, 0)):
		return due, fmt.Errorf("that is more than %d years ahead, which is the most", maxYears)
	}
	return due, nil
}

// after adds a delay such as "5s", "1h30m", "2 days" or "1 hour 30 minutes".
func after(delay string, now time.Time) (time.Time, error) {
	bad := fmt.Errorf(`delay %q cannot be read: write a number and a unit, for example "30s", "10m", "2h" or "1 day"`, delay)
	rest := strings.ToLower(strings.TrimPrefix(strings.ToLower(delay), "in "))
	var total time.Duration
	days := 0
	for found := false; ; found = true {
		rest = strings.TrimLeft(rest, " ,")
		rest = strings.TrimPrefix(rest, "and ")
		if rest == "" {
			if !found {
				return now, bad
			}
			// Days are calendar days: across a change of the clocks "1 day"
			// keeps the time of day.
			return now.AddDate(0, 0, days).Add(total), nil
		}
		n, unit, left := nextAmount(rest)
		each, ok := units[unit]
		if !ok || n < 0 {
			return now, bad
		}
		rest = left
		switch {
		case each%day == 0 && n == float64(int(n)) && n < maxYears*400:
			days += int(n) * int(each/day)
		case n*float64(each) > float64(maxYears*400*day):
			return now, fmt.Errorf("that is more than %d years ahead, which is the most", maxYears)
		default:
			total += time.Duration(n * float64(each))
		}
	}
}

const day = 24 * time.Hour

var units = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day, "w": 7 * day, "week": 7 * day, "weeks": 7 * day,
}

// nextAmount splits "90 minutes and more" into 90, "minutes", " and more". n is
// negative if there is no number.
func nextAmount(s string) (n float64, unit, rest string) {
	end := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsDigit(r) && r != '.' })
	if end <= 0 {
		return -1, "", s
	}
	n, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return -1, "", s
	}
	s = strings.TrimLeft(s[end:], " ")
	end = strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		end = len(s)
	}
	return n, s[:end], s[end:]
}

// clock reads a time of day, a date with one, or RFC 3339. A time of day that
// has passed means tomorrow.
func clock(at string, now time.Time) (time.Time, error) {
	loc := now.Location()
	for _, layout := range []string{"15:04", "15:04:05"} {
		if c, err := time.ParseInLocation(layout, at, loc); err == nil {
			due := time.Date(now.Year(), now.Month(), now.Day(), c.Hour(), c.Minute(), c.Second(), 0, loc)
			if !due.After(now) {
				due = time.Date(now.Year(), now.Month(), now.Day()+1, c.Hour(), c.Minute(), c.Second(), 0, loc)
			}
			return due, nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if due, err := time.ParseInLocation(layout, at, loc); err == nil {
			return due, nil
		}
	}
	if due, err := time.Parse(time.RFC3339, at); err == nil {
		return due.In(loc), nil
	}
	return now, fmt.Errorf(`at %q cannot be read: write "18:30", "2026-12-01 09:00" or RFC 3339`, at)
}
