package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set when a release is built: -ldflags "-X main.release=v1.2.3".
var release string

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(p.out, versionLine())
			return err
		},
	}
}

// versionFlag gives the root command --version. cobra's own one needs
// text/template, which keeps every exported method in the program: 4 MB.
func (p *program) versionFlag(root *cobra.Command) {
	show := root.Flags().Bool("version", false, "say which version this is")
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *show && len(args) == 0 {
			_, err := fmt.Fprint(p.out, versionLine())
			return err
		}
		return help(cmd, args)
	}
}

func versionLine() string {
	return fmt.Sprintf("dragoman %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version returns the release, or what the Go toolchain noted about the source.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "development"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v += " " + s.Value[:12]
		}
	}
	return v
}
