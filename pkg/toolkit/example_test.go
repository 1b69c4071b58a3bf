package toolkit_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/dragoman-chat/dragoman/pkg/toolkit"
)

// count is a whole tool.
type count struct{}

func (count) Name() string        { return "count_words" }
func (count) Description() string { return "Count the words of a text." }
func (count) JSONSchema() map[string]interface{} {
	return map[string]interface{}{
		"type":       "object",
		"properties": map[string]interface{}{"text": map[string]interface{}{"type": "string", "description": "The text"}},
		"required":   []string{"text"},
	}
}

func (count) Execute(_ context.Context, params map[string]interface{}) (toolkit.ToolResult, error) {
	n := len(strings.Fields(params["text"].(string)))
	return toolkit.ToolResult{Success: true, Content: fmt.Sprint(n), Data: map[string]interface{}{"words": n}}, nil
}

func ExampleRegistry_Execute() {
	registry := toolkit.NewRegistry()
	if err := registry.Register(count{}); err != nil {
		fmt.Println(err)
	}
	result, err := registry.Execute(context.Background(), toolkit.ToolRequest{
		Name:       "count_words",
		Parameters: map[string]interface{}{"text": "to be or not to be"},
	})
	fmt.Println(result.Content, err)

	_, err = registry.Execute(context.Background(), toolkit.ToolRequest{Name: "count_words"})
	fmt.Println(err)
	// Output:
	// 6 <nil>
	// count_words: Invalid arguments for count_words: text is required. Correct them and call the tool again. (arguments do not match the schema)
}

func ExampleRegistry_ExecuteBatch() {
	registry := toolkit.NewRegistry()
	if err := registry.Register(count{}); err != nil {
		fmt.Println(err)
	}
	batch, err := registry.ExecuteBatch(context.Background(), []toolkit.ToolRequest{
		{ID: "summary", Name: "count_words", DependsOn: []string{"letter"}, Parameters: map[string]interface{}{"text": "never run"}},
		{ID: "letter", Name: "count_words"}, // without the text
		{ID: "note", Name: "count_words", Parameters: map[string]interface{}{"text": "buy milk"}},
	})
	fmt.Println(batch.Results["note"].Content, err)
	fmt.Println(batch.Results["summary"].Error)
	// Output:
	// 2 <nil>
	// skipped because letter failed
}
