package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dragoman-chat/dragoman/pkg/store"
)

// A turn in which exec was offered can be run again, and so can one of somebody
// for whom there was none, or while no wall held. It takes no sandbox. With
// another configuration the tools differ, and replay says so.
func TestExecIsOfferedAgainInAReplay(t *testing.T) {
	const same = "2 of 2 requests are alike"
	const differ = "request 1: it differs from the one that was sent: the tools differ\n"
	config := func(c *scene, exec string) string {
		return file(t, fmt.Sprintf("data_dir: %s\nstore: {driver: sqlite}\ntimezone: UTC\nchannels: {telegram: {type: telegram, token: \"1:a\"}}\ntools: {exec: {%s}}\n", c.dir, exec))
	}
	wall := aWall(t)
	for _, tc := range []struct {
		then, now string
		walled    bool
		claimed   string
		want      string
	}{
		{then: `allow: ["telegram:5"]`, walled: true, want: same},
		{then: `allow: ["telegram:5"], timeout: 7s, commands: [ls, cat]`, walled: true, want: same},
		{then: `allow: ["telegram:5"]`, want: same},
		{then: `allow: ["telegram:6"]`, walled: true, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5"], commands: [no-such-program]`, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5", owner]`, claimed: "telegram:5", walled: true, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: [owner]`, claimed: "telegram:5", walled: true, want: same},
		{then: `allow: ["telegram:5"]`, now: `allow: [owner]`, claimed: "telegram:6", walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:6"]`, walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: []`, walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5"], timeout: 7s`, walled: true, want: differ},
		{then: `allow: ["telegram:5"]`, now: `allow: ["telegram:5"], commands: [ls]`, walled: true, want: differ},
		{then: `allow: ["telegram:5"], commands: [ls, cat]`, now: `allow: ["telegram:5"], commands: [ls]`, walled: true, want: differ},
	} {
		t.Run(fmt.Sprint(tc.then, " ", tc.now, " ", tc.walled, " ", tc.claimed), func(t *testing.T) {
			c := newScene(t, "")
			if c.wall = noWall; tc.walled {
				c.wall = wall
			}
			c.file = config(c, tc.then)
			c.live("1", "one")
			if tc.claimed != "" {
				c.put(store.Tx{Facts: []store.Fact{{Key: "gateway/owner", Value: tc.claimed}}})
			}
			if tc.now != "" {
				c.file = config(c, tc.now)
			}
			code, text := c.run("replay", "turn-1")
			if (code == 0) != (tc.want == same) || !strings.Contains(text, tc.want) {
				t.Errorf("%d, %swant %s", code, text, tc.want)
			}
		})
	}
}
