package tools

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// What models write, and what it means.
var broken = map[string]string{
	`{"a": 1}`:                        `{"a": 1}`,
	` {"a": 1} `:                      `{"a": 1}`,
	``:                                `{}`,
	`null`:                            `{}`,
	`None`:                            `{}`,
	`{'a': 'b'}`:                      `{"a":"b"}`,
	`{'a': 'it\'s "it"'}`:             `{"a":"it's \"it\""}`,
	`{"a": 1,}`:                       `{"a":1}`,
	`{"a": [1, 2,], }`:                `{"a":[1,2]}`,
	`{a: 1, b_c-d: {$e: 2}}`:          `{"a":1,"b_c-d":{"$e":2}}`,
	`{true: True, b: False, c: None}`: `{"true":true,"b":false,"c":null}`,
	"{\"a\": 1, // one\n# two\n\"b\": /* , */ 2}": `{"a":1,"b":2}`,
	"```json\n{\"a\": 1}\n```":                    `{"a":1}`,
	"```\n{'a': 1}```":                            `{"a":1}`,
	"```JSON {\"a\": 1}":                          `{"a":1}`,
	"\ufeff{\"a\":\u00a01}":                       `{"a":1}`,
	`"{\"a\": \"b\"}"`:                            `{"a": "b"}`,
	`"\"{\\\"a\\\": 1}\""`:                        `{"a": 1}`,
	`'{"a": 1}'`:                                  `{"a": 1}`,
	`"{'a': 1}"`:                                  `{"a":1}`,
	`""`:                                          `{}`,
	"{\"a\": \"one\ntwo\tthree\"}":                `{"a":"one\u000atwo\u0009three"}`,
	"{\"a\": \"x\\\ny\"}":                         `{"a":"x\\\u000ay"}`,
	`{“a”: “b "c" d”, ‘e’: ‘f’}`:                  `{"a":"b \"c\" d","e":"f"}`,
	"{\"a\": 1 \"b\": 2\n'c': 3}":                 `{"a":1,"b":2,"c":3}`,
	`{"a": [{"b": 1} {"b": 2}[3]]}`:               `{"a":[{"b":1},{"b":2},[3]]}`,
	`{"a": 1}}`:                                   `{"a":1}`,
	`{"a": 1};`:                                   `{"a":1}`,
	`{"a": "\d+\.\w"}`:                            `{"a":"\\d+\\.\\w"}`,
	`{"a": "C:\dir\"}"}`:                          `{"a":"C:\\dir\"}"}`,
	`{'a': 12345678901234567890, 'b': -1.50e+3}`:  `{"a":12345678901234567890,"b":-1.50e+3}`,
	"{'a': '\u00fc\\u00fc\\ud83d\\ude00\xff'}":    `{"a":"ü\u00fc\ud83d\ude00` + "\ufffd" + `"}`,
}

// Texts that were cut off, and how much of them stands for what they would have
// been, nobody knows.
var cut = []string{
	`{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a": "b`, `{"a": "b"`, `{"a": "b",`, `{"a": "b", `, `{"a": [1, 2`, `{"a": {"b": 1}`, `{"a": tr`, `{"a": -`,
	`{"a": 1.`, `{"a": 12`, `{"a": "\`, `{"a": "\u00`, `{'a': 'b`, `{a`, `{a: N`, `{"a": 1, // one`, `{"a": 1 /* `, `"{\"a\": 1`, `"{\"a\": 1"`,
	"```json", "```json\n{\"a\": 1", `{"command": "rm -rf /tmp/a`, `{“a”: “b`, `{"a": {"b": [}`[:13],
}

// Texts that could mean several things, or nothing.
var unreadable = []string{
	`[]`, `[{"a": 1}]`, `7`, `true`, `"text"`, `text`, `{"a": fast}`, `{"a": "b" c"}`, `{"a": "he said "hi" to me"}`, `{"a" "b"}`, `{"a" = 1}`,
	`{"a": 1,, "b": 2}`, `{, "a": 1}`, `{"a": [1 2]}`, `{"a": ["b" "c"]}`, `{"a": 007}`, `{"a": +1}`, `{"a": NaN}`, `{"a": (1, 2)}`,
	`{"a": [1}`, `{"a": 1]`, `{"a": 1}{"b": 2}`, `{"a": 1} and so on`, `Here it is: {"a": 1}`, `{"a": "\bword\d"}`, `{"a": "\uzzzz"}`,
	"{\"a\": [#general, #random\n]}", "{\"a\": [\"x\", //host/share\n]}", "{\"a\": #fff\n}",
	`{"a": 1e999}`, `{'it's': 1}`, `{1: 2}`, `{"a": "x"b: 1}`, strings.Repeat("[", 100_000),
	`"\"\\\"\\\\\\\"{}\\\\\\\"\\\"\""`, `"` + strings.Repeat(" ", maxRepair) + `'`,
}

func TestFieldMalformedJSON(t *testing.T) {
	for text, want := range broken {
		args, object, err := readArguments(text)
		if err != nil || object != want {
			t.Errorf("%s: got %s, %v, want %s", text, object, err, want)
			continue
		}
		var meaning map[string]interface{}
		if err := json.Unmarshal([]byte(want), &meaning); err != nil || !reflect.DeepEqual(args, meaning) {
			t.Errorf("%s: got %v, want %v, %v", text, args, meaning, err)
		}
	}
	for _, text := range cut {
		if _, object, err := readArguments(text); !errors.Is(err, errCut) {
			t.Errorf("%s: got %s, %v", text, object, err)
		}
	}
	for _, text := range unreadable {
		if _, object, err := readArguments(text); err == nil || errors.Is(err, errCut) {
			t.Errorf("%.100s: got %s, %v", text, object, err)
		}
	}
	if _, err := repairJSON(strings.Repeat("[", maxNesting+1)); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("got %v", err)
	}
}

func FuzzRepair(f *testing.F) {
	for text := range broken {
		f.Add(text, 3)
	}
	for _, text := range append(cut, unreadable[:25]...) {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, at int) {
		fixed, err := repairJSON(text)
		if err == nil && !json.Valid([]byte(fixed)) {
			t.Fatalf("%q became %q", text, fixed)
		}
		if len(fixed) > 6*len(text) {
			t.Fatalf("%q grew to %q", text, fixed)
		}
		if again, err2 := repairJSON(fixed); err == nil && (err2 != nil || again != fixed) {
			t.Fatalf("%q became %q and then %q, %v", text, fixed, again, err2)
		}
		if _, object, err := readArguments(text); err == nil && (object[0] != '{' || !json.Valid([]byte(object))) {
			t.Fatalf("%q was read as %q", text, object)
		}
		if !json.Valid([]byte(text)) {
			if err != nil {
				return
			}
			text = fixed // whatever is valid will do for what follows
		}
		var want, got interface{}
		if json.Unmarshal([]byte(text), &want) != nil {
			return // a number that is too large
		}
		valid, err := repairJSON(text)
		if err != nil {
			if strings.Contains(err.Error(), "nested") || strings.Contains(err.Error(), "too long") {
				return
			}
			t.Fatalf("valid %q was refused: %v", text, err)
		}
		if err := json.Unmarshal([]byte(valid), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("valid %q became %q, %v", text, valid, err)
		}
		// A part of it must not run.
		text = strings.TrimSpace(text)
		if at < 0 {
			at = -(at + 1)
		}
		part := strings.TrimSpace(text[:at%(len(text)+1)])
		if part == "" || len(part) == len(text) {
			return
		}
		if _, object, err := readArguments(part); err == nil {
			t.Fatalf("%q of %q was read as %q", part, text, object)
		}
	})
}

func BenchmarkRepair(b *testing.B) {
	for name, text := range map[string]string{
		"small":   `{'path': '/tmp/foo', 'start_line': 3, mode: "text",}`,
		"64K":     `{'text': '` + strings.Repeat("it\\'s a line\n", 5000) + `',}`,
		"64Kkeys": `{` + strings.Repeat("'a': [1, True,], ", 3800) + `}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := repairJSON(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
