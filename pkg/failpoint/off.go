//go:build !failpoint || !unix

package failpoint

// Hit does nothing in this build.
func Hit(string) {}
