package channels

import "testing"

func TestParseCommand(t *testing.T) {
	for _, tc := range []struct {
		text, name, args string
		ok               bool
	}{
		{"/new", "new", "", true},
		{"  /Stop \n", "stop", "", true},
		{"/start CODE-12", "start", "CODE-12", true},
		{"/say two\nlines", "say", "two\nlines", true},
		{"/a_1\tx", "a_1", "x", true},
		{"", "", "", false},
		{"/", "", "", false},
		{"/ new", "", "", false},
		{"//new", "", "", false},
		{"/usr/bin is full", "", "", false},
		{"/new@other", "", "", false},
		{"say /new", "", "", false},
		{"/neu\u00e9", "", "", false},
		{"/abcdefghijklmnopqrstuvwxyzabcdefg", "", "", false},
	} {
		name, args, ok := ParseCommand(tc.text)
		if name != tc.name || args != tc.args || ok != tc.ok {
			t.Errorf("ParseCommand(%q) = %q, %q, %v; want %q, %q, %v", tc.text, name, args, ok, tc.name, tc.args, tc.ok)
		}
	}
}
