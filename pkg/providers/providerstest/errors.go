package providerstest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/providers"
)

const invalidRequest = "invalid_request_error"

// apiError is the API's refusal.
type apiError struct {
	status                    int
	message, typ, param, code string
}

func badRequest(message, param, code string) *apiError {
	return &apiError{http.StatusBadRequest, message, invalidRequest, param, code}
}

// orNull is nil for "", which JSON writes as null, as the real API does.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func writeError(w http.ResponseWriter, e *apiError) {
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": e.message, "type": e.typ, "param": orNull(e.param), "code": orNull(e.code),
	}})
	if err != nil {
		panic(err) // plain strings always marshal
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(body) // the caller may be gone
}

// failure is how the API reports a kind of failure. The refused key is echoed
// whole, as some compatible servers do, so that a test sees whether the caller
// repeats it.
func failure(kind providers.ErrorKind, h http.Header) *apiError {
	switch kind {
	case providers.KindRateLimit:
		return &apiError{http.StatusTooManyRequests, "Rate limit reached for requests. Please try again later.", "requests", "", "rate_limit_exceeded"}
	case providers.KindAuth:
		return &apiError{http.StatusUnauthorized, "Incorrect API key provided: " + strings.TrimPrefix(h.Get("Authorization"), "Bearer ") + ".", invalidRequest, "", "invalid_api_key"}
	case providers.KindBilling:
		return &apiError{http.StatusTooManyRequests, "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "", "insufficient_quota"}
	case providers.KindContextOverflow:
		return badRequest("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", "messages", "context_length_exceeded")
	case providers.KindTimeout:
		return &apiError{http.StatusRequestTimeout, "The request timed out.", "timeout", "", ""}
	case providers.KindInvalidRequest:
		return badRequest("Invalid value for 'messages'.", "messages", "invalid_value")
	case providers.KindOverloaded, providers.KindUnreachable:
	}
	return &apiError{http.StatusServiceUnavailable, "The engine is currently overloaded, please try again later.", "server_error", "", ""}
}
