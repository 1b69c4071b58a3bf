package main

import (
	"errors"
	"syscall"

	"github.com/dragoman-chat/dragoman/channels"
	"github.com/dragoman-chat/dragoman/pkg/config"
	"github.com/dragoman-chat/dragoman/pkg/providers"
	"github.com/dragoman-chat/dragoman/pkg/store/sqlite"
)

// The exit codes, after sysexits.h where it has a word for it. The README
// lists them, and deploy/dragoman.service does not restart after those that
// only a person can mend.
const (
	exitOK      = 0
	exitFailure = 1   // anything else; trying again may help
	exitUsage   = 2   // the command line was not understood
	exitModel   = 69  // the model cannot be reached
	exitTaken   = 75  // a port or the data folder is taken
	exitSetup   = 77  // a wrong token or key, a missing permission
	exitConfig  = 78  // the configuration or the ledger cannot be used as it is
	exitKilled  = 130 // a second signal ended the program at once
)

// usageError is a command line that was not understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// exitCode says how a program that ends with err exits.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitConfig
	}
	switch providers.KindOf(err) {
	case providers.KindAuth, providers.KindBilling:
		return exitSetup
	case providers.KindUnreachable, providers.KindTimeout, providers.KindOverloaded:
		return exitModel
	default:
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, sqlite.ErrInUse):
		return exitTaken
	case errors.Is(err, sqlite.ErrUnusable):
		return exitConfig
	case errors.Is(err, channels.ErrSetup), errors.Is(err, sqlite.ErrReadOnly):
		return exitSetup
	}
	return exitFailure
}
