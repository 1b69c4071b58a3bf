package main

import (
	"bufio"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// trim gives back the pages of the program's own file that are in memory: most
// of them hold code and tables that only the start needed. They are clean, so
// nothing is written, and what is needed again comes back from the page cache.
// The kernel would do the same when memory gets short; on a small machine it is
// better not to wait for that. Called once, from any goroutine.
func trim(log *slog.Logger) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		log.Debug("start-up pages not given back", "err", err)
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		log.Debug("start-up pages not given back", "err", err)
		return
	}
	defer maps.Close() //nolint:errcheck // nothing was written
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// 00400000-00c5a000 r-xp 00000000 fe:00 1234 /usr/local/bin/dragoman
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != program || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED)
		if errno != 0 {
			log.Debug("start-up pages not given back", "err", errno)
		}
	}
}
