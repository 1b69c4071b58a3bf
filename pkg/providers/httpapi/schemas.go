package httpapi

import (
	"encoding/json"
	"reflect"
	"sync"
)

// Schemas keeps the JSON text of parameter schemas: tools hardly ever change
// and are sent with every request. It is found by the map's identity, which is
// sound because providers forbids changing a schema, and because holding it
// keeps its address from being used again. Safe for concurrent use.
type Schemas struct {
	// Complete returns a schema with what the API insists on. It does not change
	// the one it is given, which may be nil.
	Complete func(params map[string]any) map[string]any

	mu    sync.RWMutex // many chats ask at once; written once per tool
	known map[uintptr]schema
}

type schema struct {
	of   map[string]any
	text json.RawMessage
}

// maxSchemas bounds the memory; when it is full the texts are made anew.
const maxSchemas = 1024

// Text returns the text of a schema, completed. The error is json's.
func (s *Schemas) Text(params map[string]any) (json.RawMessage, error) {
	at := reflect.ValueOf(params).Pointer()
	s.mu.RLock()
	known, ok := s.known[at]
	s.mu.RUnlock()
	if ok {
		return known.text, nil
	}
	text, err := json.Marshal(s.Complete(params))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSchemas {
		s.known = make(map[uintptr]schema)
	}
	s.known[at] = schema{of: params, text: text}
	return text, nil
}
