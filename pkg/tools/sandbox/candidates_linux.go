//go:build linux && (amd64 || arm64)

package sandbox

func candidates() []candidate {
	if isRoot() && !namespacesCount() {
		return []candidate{{"root", func(Options) (jail, error) { return nil, errRoot }}}
	}
	return []candidate{{"bubblewrap", newBubblewrap}, {"landlock", newLandlock}}
}
