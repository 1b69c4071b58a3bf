//go:build !linux || (!amd64 && !arm64)

package sandbox

const advice = "commands are run on Linux only, on amd64 and arm64"

func candidates() []candidate { return nil }
