// Package failpoint names the moments around every write at which the process
// may be killed on purpose, to see that nothing is lost: the crash rig in
// cmd/loadtest does so.
//
// Without the build tag "failpoint" Hit is compiled to nothing. With it, the
// environment variable DRAGOMAN_FAILPOINT, "name" or "name:N", makes the N-th
// Hit of that name kill the process with SIGKILL, as a power cut would: no
// deferred function runs, nothing is flushed.
package failpoint

// Env is the environment variable that chooses a point.
const Env = "DRAGOMAN_FAILPOINT"

// Names returns every point, in the order in which a message passes them.
func Names() []string {
	return []string{
		"admit/before",       // a batch of a platform is about to be stored
		"store/before",       // a transaction is about to be written
		"store/after",        // it is on disk, nobody knows yet
		"admit/after",        // the batch is stored, no turn has been started
		"telegram/published", // the next poll has not confirmed the batch yet
		"discord/published",  // the batch of a socket is stored
		"turn/before-begin",
		"turn/after-begin",
		"turn/before-step", // a reply, the beginning or the end of a call
		"turn/after-step",
		"turn/before-end", // the answer is about to be stored with its outbox rows
		"turn/after-end",  // it is stored, no sender knows
		"send/before",     // a row is about to be sent
		"send/accepted",   // the platform has it, the receipt is not stored
		"send/after",      // the receipt is on its way to the disk
	}
}
