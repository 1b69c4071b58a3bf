// Package tools lets a language model call Go code: it defines what a tool is,
// keeps tools in a registry, and runs the loop between the model and the tools
// it calls. It describes no tool of its own.
//
// # Writing a tool
//
// The short way is a function and a struct for its input. The schema the model
// sees comes from the struct, and arguments that do not fit it never reach the
// function:
//
//	type input struct {
//		City string `json:"city" description:"Where"`
//		Days int    `json:"days,omitempty" description:"How many days ahead" minimum:"1" maximum:"7" default:"1"`
//	}
//
//	weather := tools.Func("weather", "Tell the weather forecast for a city.",
//		func(ctx context.Context, in input) *tools.ToolResult {
//			text, err := forecast(ctx, in.City, in.Days)
//			if err != nil {
//				return tools.ErrorResult("The forecast is not available now. Try again later.").WithError(err)
//			}
//			return tools.NewToolResult(text)
//		})
//
// The long way is to implement Tool, with a schema written by hand.
//
// A result has three readers. ForLLM is the model's: a sentence it can act on.
// ForUser, if there is one, is shown to the person as it is, unless Silent. Err
// is the operator's: it goes to the log, and to the model only if ForLLM is empty. A failure is a result
// too; nothing a tool does ends the loop.
//
// # Whom a call is for
//
// Conversations share the tools, and any number of them are busy at once. So a
// tool keeps nothing about a call in its fields; it asks its context:
//
//	call, _ := tools.CallFrom(ctx) // channel, chat, sender, message, metadata
//
// # Running a loop
//
// A registry and a provider are all a loop needs:
//
//	registry := tools.NewToolRegistry()
//	registry.Register(weather)
//	result, err := tools.RunToolLoop(ctx, tools.ToolLoopConfig{
//		Provider: provider, Model: "gpt-5-mini", Tools: registry, MaxIterations: 20,
//	}, messages, "telegram", "12345")
//
// result.Content is the answer, and result.Messages is what to append to the
// conversation, also when err says that the loop was cut short.
//
// Nothing but that is on by itself. A program that people talk to wants FinalAnswer,
// so that every run ends in a text, and LoopGuard, which ends circles; one that
// shows answers while they are made sets Stream and listens to OnEvent; one that
// has to go on after a crash keeps what Checkpoint tells it. See ToolLoopConfig.
//
// Tools that change nothing had better be ParallelSafe: the model often asks for
// several such calls at once, and they then run side by side.
//
// View narrows a registry to some of its tools, for a sub-agent or for somebody
// who may not use them all. Tools may come and go while loops run.
//
// A tool that is a LoopBreaker ends the loop, and its result is the answer;
// package control has the usual ones. Package textcall makes a provider of a model
// that cannot call tools natively, and package jsontool takes tools of another form.
//
// # Work in the background
//
// AsyncFunc makes a tool that returns at once and reports later. Start the work
// with Go, so that a panic in it is a result and not the end of the process:
//
//	tools.AsyncFunc("research", "Research a topic in the background.",
//		func(ctx context.Context, in input, report tools.AsyncCallback) *tools.ToolResult {
//			tools.Go(ctx, func(ctx context.Context) { report(ctx, research(ctx, in)) })
//			return tools.AsyncResult("Started; the result will follow.")
//		})
//
// The report counts once, and goes to the conversation that asked, however late
// it comes. ctx ends with the caller's only until the tool has returned; then it
// is the registry's, and ends when the task's time is up (30 minutes, or what
// the tool's AsyncTTL method says), or when CancelOutstanding or Shutdown ends
// it. LimitAsync bounds how many tasks there are.
//
// # Legacy tools
//
// A tool may instead keep the conversation and the callback in its fields, by
// way of ContextualTool, MetadataAwareTool and AsyncTool. Shared between two
// busy chats such a tool answers in the wrong one, unless somebody sees to it.
// The registry does: such an instance serves one call at a time, from its setters
// to the end of Execute; its callback is set once and finds the conversation by
// the context it is given; a tool with both is taken until its callback. A call
// that finds the instance busy waits for 10 seconds and is then told so.
//
// That is correct but slow. One line makes it fast, an instance per call:
//
//	registry.Register(tools.PerCall(func() tools.Tool { return NewSpawnTool() }))
//
// Two things no registry can see to. A tool that reports twice, or after it was
// given up, with a context of its own instead of the one it was given, leaves
// nothing by which to tell whose report it is; the registry then drops what is
// not certain, and PerCall is the cure. And a panic on a goroutine that was not
// started with Go ends the process.
//
// # Tests
//
// Package toolstest has a kit that every tool should pass.
package tools
