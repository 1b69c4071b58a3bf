//go:build linux && (amd64 || arm64)

package sandbox

const advice = "install bubblewrap (apt-get install bubblewrap), or run on Linux 6.12 or later"

func candidates() []candidate {
	return []candidate{{"bubblewrap", newBubblewrap}, {"landlock", newLandlock}}
}
