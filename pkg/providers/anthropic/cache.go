package anthropic

import sdk "github.com/anthropics/anthropic-sdk-go"

// markCache sets the four marks the API allows: behind the tools, behind the
// system texts, and behind the last two messages of the user. What stands
// before a mark is kept by the API for the next request, which finds it by the
// older of those two, however many calls lie between.
func markCache(req *sdk.MessageNewParams) {
	mark := sdk.NewCacheControlEphemeralParam()
	if n := len(req.Tools); n > 0 {
		req.Tools[n-1].OfTool.CacheControl = mark
	}
	if n := len(req.System); n > 0 {
		req.System[n-1].CacheControl = mark
	}
	left := 2
	for i := len(req.Messages) - 1; i >= 0 && left > 0; i-- {
		m := &req.Messages[i]
		if m.Role != sdk.MessageParamRoleUser {
			continue
		}
		switch b := &m.Content[len(m.Content)-1]; {
		case b.OfText != nil:
			b.OfText.CacheControl = mark
		case b.OfToolResult != nil:
			b.OfToolResult.CacheControl = mark
		}
		left--
	}
}
