package config

import (
	"os"
	"strings"
	"time"
)

// localZone is the machine's time zone under its real name. Go calls it
// "Local", which tells neither a model nor a person anything.
func localZone() *time.Location {
	for _, name := range []string{os.Getenv("TZ"), linkedZone("/etc/localtime")} {
		if zone, err := time.LoadLocation(name); err == nil && name != "" && name != "Local" {
			return zone
		}
	}
	return time.Local
}

// linkedZone is the name of the zone a link into the zone database points at.
func linkedZone(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	_, name, _ := strings.Cut(target, "zoneinfo/")
	return name
}
