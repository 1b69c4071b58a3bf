package tools

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Arguments hold numbers as float64, as is usual in Go. But an account number of
// 19 digits does not fit into one and would become another's: such a number is
// a json.Number.

// maxDigits is how many digits of a whole number fit into any float64.
const maxDigits = 15

// longNumber reports whether a text may hold a whole number that is not exact as
// a float64.
func longNumber(text string) bool {
	digits := 0
	for i := range len(text) {
		if c := text[i]; c < '0' || c > '9' {
			digits = 0
		} else if digits++; digits > maxDigits {
			return true
		}
	}
	return false
}

// decodeNumbers decodes a JSON text and leaves the numbers in it as they are.
func decodeNumbers(text string) (v interface{}, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v) == nil
}

// exact makes a float64 of every json.Number in v for which that is exact. It
// changes v, and fails at a number that no float64 is near.
func exact(v interface{}) (w interface{}, ok bool) {
	switch v := v.(type) {
	case json.Number:
		return exactNumber(v)
	case map[string]interface{}:
		for key, e := range v {
			if v[key], ok = exact(e); !ok {
				return nil, false
			}
		}
	case []interface{}:
		for i, e := range v {
			if v[i], ok = exact(e); !ok {
				return nil, false
			}
		}
	}
	return v, true
}

func exactNumber(n json.Number) (v interface{}, ok bool) {
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || f == 0 && strings.ContainsAny(mantissa(n), "123456789") {
		return nil, false
	}
	if strings.ContainsAny(string(n), ".eE") {
		return f, true
	}
	if i, err := n.Int64(); err == nil && int64(f) == i {
		return f, true
	}
	return n, true
}

// mantissa is a number without its exponent.
func mantissa(n json.Number) string {
	m, _, _ := strings.Cut(strings.ToLower(string(n)), "e")
	return m
}

// isWhole reports whether what exactNumber returned is a whole number.
func isWhole(n interface{}) bool {
	switch n := n.(type) {
	case float64:
		return n == math.Trunc(n)
	case json.Number:
		return !strings.ContainsAny(string(n), ".eE")
	}
	return false
}

// withoutPoint writes a whole number that has a point or an exponent without
// them, and reports whether it had: programs read 5 as an integer, not 5.0.
func withoutPoint(n json.Number) (whole json.Number, changed bool) {
	if !strings.ContainsAny(string(n), ".eE") {
		return n, false
	}
	f, ok := exactNumber(n)
	if v, isFloat := f.(float64); ok && isFloat && v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return json.Number(strconv.FormatInt(int64(v), 10)), true
	}
	return n, false
}
