//go:build !linux || (!amd64 && !arm64)

package sandbox

import "errors"

func candidates() []candidate {
	return []candidate{{"system", func(Options) (jail, error) {
		return nil, errors.New("commands are run on Linux only, on amd64 and arm64")
	}}}
}
