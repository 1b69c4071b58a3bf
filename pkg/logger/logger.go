// Package logger sets up the log. Programs and packages log through an
// *slog.Logger they are given; InfoCF and its kin are a thin face over slog's
// default logger for tools written against that older form.
package logger

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
)

// New returns a logger that writes lines to w. level is debug, info, warn or
// error; format is text or json. Anything else means info and text. w gets one
// whole line per call of Write.
func New(w io.Writer, level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: levelOf(level)}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func levelOf(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo
	}
	return l
}

// DebugCF logs at debug level for a component. Fields become attributes, in
// the order of their names.
func DebugCF(component, msg string, fields map[string]interface{}) {
	logCF(slog.LevelDebug, component, msg, fields)
}

// InfoCF is DebugCF at info level.
func InfoCF(component, msg string, fields map[string]interface{}) {
	logCF(slog.LevelInfo, component, msg, fields)
}

// WarnCF is DebugCF at warn level.
func WarnCF(component, msg string, fields map[string]interface{}) {
	logCF(slog.LevelWarn, component, msg, fields)
}

// ErrorCF is DebugCF at error level.
func ErrorCF(component, msg string, fields map[string]interface{}) {
	logCF(slog.LevelError, component, msg, fields)
}

func logCF(level slog.Level, component, msg string, fields map[string]interface{}) {
	ctx, log := context.Background(), slog.Default()
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(fields)+1)
	attrs = append(attrs, slog.String("component", component))
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, slog.Any(key, fields[key]))
	}
	log.LogAttrs(ctx, level, msg, attrs...)
}
