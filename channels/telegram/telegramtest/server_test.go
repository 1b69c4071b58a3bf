package telegramtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	tt "github.com/dragoman-chat/dragoman/channels/telegram/telegramtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call asks the server for something and returns its answer.
func call(ctx context.Context, t *testing.T, s http.Handler, path string, form url.Values) (int, map[string]any) {
	t.Helper()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	var body map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %v in %s", path, err, w.Body)
		}
	}
	return w.Code, body
}

const prefix = "/bot" + tt.Token + "/"

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := tt.New()
	ada := s.AddUser("Ada", "ada")
	forum := s.AddGroup("Forum", true)
	topic := s.AddTopic(forum.ID)
	gone := s.AddUser("Gone", "")
	s.Block(gone.ID)
	to := func(chat int64, more ...string) url.Values {
		form := url.Values{"chat_id": {fmt.Sprint(chat)}, "text": {"hello"}}
		for i := 0; i < len(more); i += 2 {
			form.Set(more[i], more[i+1])
		}
		return form
	}
	for _, tc := range []struct {
		name, path string
		form       url.Values
		code       int
		says       string
	}{
		{"fine", prefix + "sendMessage", to(ada.ID), 200, ""},
		{"method in another case", prefix + "SENDMESSAGE", to(ada.ID), 200, ""},
		{"topic", prefix + "sendMessage", to(forum.ID, "message_thread_id", fmt.Sprint(topic)), 200, ""},
		{"no such topic", prefix + "sendMessage", to(forum.ID, "message_thread_id", "999"), 400, "message thread not found"},
		{"no topics here", prefix + "sendMessage", to(ada.ID, "message_thread_id", "1"), 400, "message thread not found"},
		{"no chat id", prefix + "sendMessage", url.Values{"text": {"x"}}, 400, "chat_id is empty"},
		{"unknown chat", prefix + "sendMessage", to(-5), 400, "chat not found"},
		{"blocked", prefix + "sendMessage", to(gone.ID), 403, "bot was blocked by the user"},
		{"empty", prefix + "sendMessage", to(ada.ID, "text", ""), 400, "message text is empty"},
		{"blank", prefix + "sendMessage", to(ada.ID, "text", " \n "), 400, "message text is empty"},
		{"full", prefix + "sendMessage", to(ada.ID, "text", strings.Repeat("a", 4096)), 200, ""},
		{"too long", prefix + "sendMessage", to(ada.ID, "text", strings.Repeat("a", 4097)), 400, "message is too long"},
		{"too long in UTF-16", prefix + "sendMessage", to(ada.ID, "text", strings.Repeat("😀", 2049)), 400, "message is too long"},
		{"not UTF-8", prefix + "sendMessage", to(ada.ID, "text", "\xff"), 400, "strings must be encoded in UTF-8"},
		{"entity", prefix + "sendMessage", to(ada.ID, "entities", `[{"type":"bold","offset":0,"length":5}]`), 200, ""},
		{"entity too far", prefix + "sendMessage", to(ada.ID, "entities", `[{"type":"bold","offset":0,"length":6}]`), 400, "ends after the end of the text"},
		{"entity in a character", prefix + "sendMessage", to(ada.ID, "text", "😀a", "entities", `[{"type":"bold","offset":1,"length":1}]`), 400, "in a middle of a UTF-16 symbol"},
		{"entity of no type", prefix + "sendMessage", to(ada.ID, "entities", `[{"type":"shout","offset":0,"length":1}]`), 400, "unsupported type"},
		{"entities that are none", prefix + "sendMessage", to(ada.ID, "entities", `{`), 400, "can't parse entities"},
		{"reply to nothing", prefix + "sendMessage", to(ada.ID, "reply_parameters", `{"message_id":99}`), 400, "message to be replied not found"},
		{"reply to nothing, allowed", prefix + "sendMessage", to(ada.ID, "reply_parameters", `{"message_id":99,"allow_sending_without_reply":true}`), 200, ""},
		{"action", prefix + "sendChatAction", to(ada.ID, "action", "typing"), 200, ""},
		{"no action", prefix + "sendChatAction", to(ada.ID, "action", "dance"), 400, "wrong parameter action"},
		{"commands", prefix + "setMyCommands", url.Values{"commands": {`[{"command":"stop","description":"Stop"}]`}}, 200, ""},
		{"commands in capitals", prefix + "setMyCommands", url.Values{"commands": {`[{"command":"Stop","description":"Stop"}]`}}, 400, "BOT_COMMAND_INVALID"},
		{"unknown method", prefix + "sendTelepathy", nil, 404, "method not found"},
		{"wrong token", "/bot" + tt.WrongToken + "/getMe", nil, 401, "Unauthorized"},
		{"no token", "/botfather/getMe", nil, 404, "Not Found"},
		{"no bot", "/getMe", nil, 404, "Not Found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, body := call(t.Context(), t, s, tc.path, tc.form)
			says, _ := body["description"].(string)
			if code != tc.code || body["ok"] != (tc.code == 200) || !strings.Contains(says, tc.says) {
				t.Errorf("%d %v, want %d with %q", code, body, tc.code, tc.says)
			}
		})
	}
}

func TestGetUpdates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := tt.New()
		ada := s.AddUser("Ada", "ada")
		get := func(ctx context.Context, offset int64, timeout int) (int, []any) {
			code, body := call(ctx, t, s, prefix+"getUpdates", url.Values{"offset": {fmt.Sprint(offset)}, "timeout": {fmt.Sprint(timeout)}})
			list, _ := body["result"].([]any)
			return code, list
		}
		start := time.Now()
		if _, got := get(t.Context(), 0, 10); len(got) != 0 || time.Since(start) != 10*time.Second {
			t.Errorf("a poll without news gave %v after %s", got, time.Since(start))
		}
		for i := range 3 {
			s.Post(tt.Message{Chat: tt.Chat{ID: ada.ID}, From: &ada, Text: fmt.Sprint(i)})
		}
		_, first := get(t.Context(), 0, 10)
		if _, again := get(t.Context(), 0, 10); len(first) != 3 || len(again) != 3 {
			t.Errorf("%d updates, then %d; what is not confirmed comes again", len(first), len(again))
		}
		id := int64(first[1].(map[string]any)["update_id"].(float64))
		if _, rest := get(t.Context(), id, 10); len(rest) != 2 || s.Confirmed() != 1 {
			t.Errorf("%d updates from the second on, %d confirmed", len(rest), s.Confirmed())
		}
		if _, last := get(t.Context(), -1, 10); len(last) != 1 || s.Confirmed() != 2 {
			t.Errorf("%d updates from the last on, %d confirmed", len(last), s.Confirmed())
		}

		// A waiting poll hears of news at once, and loses against a newer one.
		type result struct{ code, n int }
		poll := func(ctx context.Context, offset int64) chan result {
			c := make(chan result, 1)
			go func() {
				code, got := get(ctx, offset, 50)
				c <- result{code, len(got)}
			}()
			synctest.Wait()
			return c
		}
		older := poll(t.Context(), id+2)
		newer := poll(t.Context(), id+2)
		if got := <-older; got.code != 409 {
			t.Errorf("the older poll got %+v", got)
		}
		s.Post(tt.Message{Chat: tt.Chat{ID: ada.ID}, From: &ada, Text: "news"})
		if got := <-newer; got.code != 200 || got.n != 1 {
			t.Errorf("the newer poll got %+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := poll(ctx, id+3)
		cancel()
		<-left
		if s.Polling() {
			t.Error("a poll whose client is gone goes on")
		}
	})
}

func TestAllowedUpdates(t *testing.T) {
	t.Parallel()
	s := tt.New()
	if s.Push("message_reaction", 1) != 0 || s.Push("edited_message", 1) == 0 {
		t.Error("the default leaves out reactions and nothing else that a bot sees here")
	}
	call(t.Context(), t, s, prefix+"getUpdates", url.Values{"allowed_updates": {`["message"]`}})
	if s.Push("edited_message", 1) != 0 || s.Push("message", 1) == 0 {
		t.Error("only messages were asked for")
	}
	call(t.Context(), t, s, prefix+"getUpdates", nil)
	if s.Push("edited_message", 1) != 0 {
		t.Error("the last list stays in force")
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := tt.New()
		ada := s.AddUser("Ada", "ada")
		s.Throttle(ada.ID, 3*time.Second)
		form := url.Values{"chat_id": {fmt.Sprint(ada.ID)}, "text": {"hello"}}
		code, body := call(t.Context(), t, s, prefix+"sendMessage", form)
		parameters, _ := body["parameters"].(map[string]any)
		if code != 429 || parameters["retry_after"] != 3.0 {
			t.Errorf("got %d %v", code, body)
		}
		time.Sleep(3 * time.Second)
		if code, body := call(t.Context(), t, s, prefix+"sendMessage", form); code != 200 {
			t.Errorf("afterwards: %d %v", code, body)
		}
	})
}

func BenchmarkSendMessage(b *testing.B) {
	s := tt.New()
	s.Forget = true
	ada := s.AddUser("Ada", "ada")
	form := url.Values{"chat_id": {fmt.Sprint(ada.ID)}, "text": {"hello"}}.Encode()
	for b.Loop() {
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, prefix+"sendMessage", strings.NewReader(form))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		s.ServeHTTP(httptest.NewRecorder(), req)
	}
}

func BenchmarkPostAndPoll(b *testing.B) {
	s := tt.New()
	s.Forget = true
	ada := s.AddUser("Ada", "ada")
	next := int64(0)
	s.OnServe = func(ids []int64) { next = ids[len(ids)-1] + 1 }
	for b.Loop() {
		s.Post(tt.Message{Chat: tt.Chat{ID: ada.ID}, From: &ada, Text: "hello"})
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, prefix+"getUpdates?offset="+fmt.Sprint(next), nil)
		s.ServeHTTP(httptest.NewRecorder(), req)
	}
}
