// Package toolkit is a registry of tools for programs that send requests and
// read outcomes: one at a time, without waiting, or as a batch whose requests
// depend on each other. Below it is a registry of package tools, which checks
// the arguments, contains panics and keeps conversations apart; so a tool that
// is registered here can be called by a model, and the other way round:
//
//	core := tools.NewToolRegistry()
//	registry := toolkit.Over(core)
//	registry.Register(deploy)     // a toolkit.Tool, for RunToolLoop too
//	core.Register(weather)        // a tools.Tool, for requests too
//
//	batch, err := registry.ExecuteBatch(ctx, []toolkit.ToolRequest{
//		{ID: "config", Name: "read_file", Parameters: map[string]interface{}{"path": "config.json"}},
//		{Name: "deploy", DependsOn: []string{"config"}},
//	})
//
// A request has one outcome, and it is the last one: work that a tool starts in
// the background is waited for. A failure is in the result as well as in the
// error.
//
// RegisterBuiltinTools adds execute_bash, if the machine has a sandbox for it,
// read_file and other tools for files. They work in the current directory.
package toolkit
