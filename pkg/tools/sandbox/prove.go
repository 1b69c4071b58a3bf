package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// trial is what every wall has to refuse, and the one thing it has to allow. Its
// arguments are a file beside the workspace that can be read, one that is not
// there, the port of a listener on loopback, and a file that has to stay hidden.
// Each word of the output is one
// thing that went through.
const trial = `
echo inside >made && cat made
(cat "$1") >/dev/null 2>&1 && echo read
[ -n "$4" ] && (cat "$4") >/dev/null 2>&1 && echo hidden
(echo x >"$2") 2>/dev/null && echo wrote
(exec 3<>"/dev/tcp/127.0.0.1/$3") 2>/dev/null && echo connected
nc -w 1 127.0.0.1 "$3" </dev/null >/dev/null 2>&1 && echo connected
[ -n "$BASH_VERSION" ] || command -v nc >/dev/null || echo "no bash and no nc to try the network with"
[ -z "$DRAGOMAN_TRIAL" ] || echo environment
exit 0`

// prove has the wall run a command that has to work, and try what has to fail.
// Whoever listens and looks on is outside.
func (w *Wall) prove(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp(o.Dir, ".sandbox-trial-")
	if err != nil {
		return fmt.Errorf("a folder for the trial: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	workspace, secret, outside := filepath.Join(dir, "workspace"), filepath.Join(dir, "secret"), filepath.Join(dir, "outside")
	if err := errors.Join(os.Mkdir(workspace, 0o700), os.WriteFile(secret, []byte("secret\n"), 0o600)); err != nil {
		return fmt.Errorf("a folder for the trial: %w", err)
	}
	hidden := o.Hidden
	if hidden != "" {
		if hidden, err = filepath.Abs(hidden); err != nil {
			return err
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("a listener for the trial: %w", err)
	}
	met := make(chan int)
	go func() { met <- count(l) }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	args, err := shell(trial)
	var got Outcome
	if err == nil {
		got, err = w.Run(ctx, Command{Args: append(args, "trial", secret, outside, port, hidden), Workspace: workspace})
	}
	err = errors.Join(err, l.Close())
	connections := <-met
	switch _, there := os.Lstat(outside); {
	case err != nil:
		return err
	case got.Ended != nil:
		return fmt.Errorf("the trial: %w", got.Ended)
	case got.Output != "inside\n" && !o.Network, !strings.HasPrefix(got.Output, "inside\n"):
		return fmt.Errorf("it does not hold: a trial that should say only \"inside\" said %q, status %d", got.Output, got.Status)
	case there == nil:
		return errors.New("it does not hold: a command wrote outside of its workspace")
	case connections > 0 && !o.Network:
		return errors.New("it does not hold: a command reached the network")
	}
	return nil
}

// count takes connections until l is closed, and says how many there were.
func count(l net.Listener) int {
	for n := 0; ; n++ {
		conn, err := l.Accept()
		if err != nil {
			return n
		}
		_ = conn.Close() // nothing was said
	}
}
