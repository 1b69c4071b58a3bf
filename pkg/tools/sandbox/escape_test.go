//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dragoman-chat/dragoman/pkg/tools/sandbox/sandboxtest"
)

// attempt is a way out, or a way to take more than one's share.
type attempt struct {
	name   string
	script string // see scene.fill; "ESCAPED" in the output is one more sign
	limits Limits
	// bare says that the attempt succeeds where there is no wall, and so is
	// tried there too: an attempt that fails anyway proves nothing.
	bare bool
	root bool // succeeds without a wall for root only
	// prepare sets something up, and check looks at what came of it.
	prepare func(t *testing.T, s *scene)
	check   func(t *testing.T, s *scene, o Outcome)
}

func perl(code string) string { return "perl -MSocket=:all -e '" + code + "' 2>&1" }

var attempts = []attempt{
	// Files.
	{name: "a full path", script: `cat @DIR/secret`, bare: true},
	{name: "dots", script: `cat ../secret; cd ..; cat secret; cd /; cat .@DIR/secret`, bare: true},
	{name: "a symbolic link", script: `ln -s @DIR/secret l; cat l`, bare: true},
	{name: "a link to the root", script: `ln -s / root; cat root@DIR/secret; cd root && cat .@DIR/secret`, bare: true},
	{name: "a hard link", script: `ln @DIR/secret h && cat h`, bare: true},
	{name: "the configuration", script: `cat @DIR/config.yaml`, bare: true},
	{name: "another conversation", script: `cat @DIR/other/diary; ls @DIR/other`, bare: true},
	{name: "writing to another conversation", script: `echo x >@DIR/other/note`, bare: true},
	{name: "writing outside", script: `echo x >@DIR/out; mkdir @DIR/d; ln -s a @DIR/l; mkfifo @DIR/f`, bare: true},
	{name: "writing to shared places", script: `for d in /tmp /var/tmp /dev/shm /usr/bin /etc /run /; do (echo x >$d/@TOKEN); done`, bare: true},
	{name: "adding to a file", script: `echo x >>@DIR/secret`, bare: true},
	{name: "emptying a file", script: `truncate -s 0 @DIR/secret; ` + perl(`truncate("@DIR/secret",0)`), bare: true},
	{name: "deleting", script: `rm -rf @DIR/secret @DIR/other`, bare: true},
	{name: "renaming", script: `mv @DIR/secret @DIR/stolen; mv @DIR/other/diary .; cat diary`, bare: true},
	{name: "moving the workspace", script: `mv @WS @DIR/elsewhere; cd /; mv @WS @DIR/elsewhere; rmdir /workspace @WS`, bare: true},
	{name: "a workspace that becomes a link", script: `cd /; rm -rf @WS /workspace; ln -sfn / @WS; ln -sfn / /workspace; rmdir @WS`, bare: true},
	{name: "modes", script: `chmod 777 @DIR .. @DIR/secret; ` + perl(`my $p="@DIR/secret"; syscall(%fchmodat%,-100,$p,0777)`), bare: true},
	{name: "modes of programs", script: perl(`open(my $f,"<","/usr/bin/env")||die; my $m=(stat $f)[2]; chmod($m&07777,$f) and print "ESCAPED"`), bare: true, root: true},
	{name: "times of programs", script: perl(`open(my $f,"<","/usr/bin/env")||die; my @s=stat $f; utime($s[8],$s[9],$f) and print "ESCAPED"`), bare: true, root: true},
	{name: "owners", script: `chown 1:1 @DIR/secret`, bare: true, root: true},
	{name: "times", script: `touch -d 2001-01-01 @DIR/secret; ` + perl(`utime(1,1,"@DIR/secret")`), bare: true},
	{name: "attributes", script: perl(`my ($p,$n,$v)=("@DIR/secret","user.x","1"); syscall(%setxattr%,$p,$n,$v,1,0)==0 and print "ESCAPED"`), bare: true},
	{name: "watching", script: perl(`my ($p,$f)=("@DIR/other",syscall(%inotify_init%,0)); $f>=0 && syscall(%inotify_add%,$f,$p,0xfff)>=0 and print "ESCAPED"`), bare: true},
	{name: "the passwords", script: `cat /etc/shadow /etc/gshadow >x && echo ESCAPED; grep -q root: x && echo ESCAPED`, bare: true, root: true},
	{name: "homes", script: `ls -a /root /home/* && echo ESCAPED`, bare: true, root: true},
	{name: "disks and memory", script: `for d in /dev/mem /dev/kmsg /dev/vda /dev/sda /dev/loop0 /dev/fuse /dev/kvm; do (head -c 1 $d >/dev/null) 2>/dev/null && echo ESCAPED; done`},
	{name: "making devices", script: `mknod b b 8 0 && echo ESCAPED; mknod c c 1 1 && echo ESCAPED; (head -c 1 c >/dev/null) 2>/dev/null && echo ESCAPED`, bare: true, root: true},
	{name: "the kernel's settings", script: `for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/kernel/hostname /proc/sys/kernel/pid_max; do (: >>$f) 2>/dev/null && echo ESCAPED; done`, bare: true, root: true},
	// The daemon through /proc.
	{name: "the root of a process", script: `cat /proc/self/root@DIR/secret /proc/1/root@DIR/secret /proc/@PARENT/root@DIR/secret`, bare: true},
	{name: "the folder of a process", script: `cat /proc/self/cwd/../secret /proc/@PARENT/cwd/sandbox.go && echo ESCAPED`, bare: true},
	{name: "the daemon's environment", script: `cat /proc/@PARENT/environ >e && [ -s e ] && echo ESCAPED; cat /proc/1/environ /proc/$PPID/environ`, bare: true},
	{name: "the daemon's files", script: `for f in /proc/@PARENT/fd/*; do timeout 1 head -c 100 $f; done 2>/dev/null; ls /proc/@PARENT/fd && echo ESCAPED`},
	{name: "the daemon's memory", script: perl(`open(F,"<","/proc/@PARENT/mem") and print "ESCAPED"`), bare: true},
	{name: "the environment", script: `env; export -p; cat /proc/self/environ`, bare: true},
	{name: "files left open", script: `cat <&@FD; cat /proc/self/fd/@FD; for i in 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do (: <&$i) 2>/dev/null && echo ESCAPED $i; done`, bare: true},
	// Processes.
	{name: "killing", script: `kill -9 @VICTIM`, bare: true},
	{name: "killing by a handle", script: perl(`my $f=syscall(%pidfd_open%,@VICTIM,0); $f>=0 && syscall(%pidfd_kill%,$f,9,0,0)==0 and print "ESCAPED"`), bare: true},
	{name: "killing the daemon", script: `kill -9 @PARENT; kill -STOP @PARENT; ` + perl(`kill("KILL",@PARENT) and print "ESCAPED"`)},
	{name: "killing the own group", script: `(sleep @TOKEN &); kill -9 0`},
	{name: "killing who watches over the group", script: `(sleep @TOKEN >/dev/null 2>&1 &); G=$(perl -e 'print getpgrp(0)'); [ "$G" -gt 1 ] && kill -9 $G; kill -9 $PPID; kill -STOP $PPID`},
	{name: "debugging", script: perl(`syscall(%ptrace%,16,@VICTIM,0,0)==0 and print "ESCAPED"`), bare: true},
	{name: "reading another's memory", script: perl(`my $b="x"x8; my $v=pack("PQ",$b,8); my $r=pack("QQ",4096,8); syscall(%readv%,@VICTIM,$v,1,$r,1,0); $!{EPERM} || $!{ESRCH} or print "ESCAPED $!"`), bare: true},
	{name: "limits of another", script: perl(`my $l=pack("QQ",9,9); syscall(%prlimit%,@VICTIM,7,$l,0)==0 and print "ESCAPED"`), bare: true},
	{name: "priority of another", script: `renice -n 19 -p @VICTIM && echo ESCAPED`, bare: true},
	{name: "processors of another", script: perl(`my $m=pack("Q",1); syscall(%affinity%,@VICTIM,8,$m)==0 and print "ESCAPED"`), bare: true},
	// The network.
	{name: "tcp", script: `exec 3<>/dev/tcp/127.0.0.1/@TCP && echo ESCAPED`, bare: true},
	{name: "tcp from another language", script: perl(`socket(S,PF_INET,SOCK_STREAM,0) && connect(S,sockaddr_in(@TCP,inet_aton("127.0.0.1"))) and print "ESCAPED"`), bare: true},
	{name: "tcp over IPv6", script: perl(`socket(S,PF_INET6,SOCK_STREAM,0) && connect(S,pack_sockaddr_in6(@TCP,inet_pton(AF_INET6,"::ffff:127.0.0.1"))) and print "ESCAPED"`), bare: true},
	{name: "udp", script: `echo x >/dev/udp/127.0.0.1/@UDP && echo ESCAPED`, bare: true},
	{name: "the name service", script: perl(`socket(S,PF_INET,SOCK_DGRAM,0) && send(S,"x",0,sockaddr_in(53,inet_aton("127.0.0.53"))) and print "ESCAPED"`), bare: true},
	{name: "listening", script: perl(`socket(S,PF_INET,SOCK_STREAM,0) && bind(S,sockaddr_in(0,INADDR_ANY)) && listen(S,1) and print "ESCAPED"`), bare: true},
	{name: "raw sockets", script: perl(`for my $f (16,17) { socket(S,$f,3,0) and print "ESCAPED" } socket(S,PF_INET,SOCK_RAW,1) and print "ESCAPED"`), bare: true, root: true},
	{name: "a socket like Docker's", script: perl(`socket(S,PF_UNIX,SOCK_STREAM,0) && connect(S,sockaddr_un("@SOCK")) and print "ESCAPED"`), bare: true},
	{name: "a socket without a place", script: perl(`socket(S,PF_UNIX,SOCK_STREAM,0) && connect(S,pack("Sa*",1,"\0@ABSTRACT")) and print "ESCAPED"`), bare: true},
	{name: "a pair of sockets turned elsewhere", script: perl(`socketpair(A,B,PF_UNIX,SOCK_DGRAM,0) && send(A,"x",0,sockaddr_un("@DGRAM")) and print "ESCAPED"`), bare: true},
	// The kernel.
	{name: "mounting", script: `mount -t tmpfs none . && echo ESCAPED; mount --bind / . && echo ESCAPED; umount /workspace && echo ESCAPED`},
	{name: "another root", script: perl(`chroot(".") and print "ESCAPED"`), bare: true, root: true},
	{name: "new namespaces", script: `unshare -Ur true && echo ESCAPED; unshare -m true && echo ESCAPED; ` + perl(`syscall(%unshare%,0x10000000)==0 and print "ESCAPED"`), bare: true, root: true},
	{name: "new namespaces by clone", script: perl(`my $p=syscall(%clone%,0x10000011,0,0,0,0); exit 0 if $p==0; $p>0 and print "ESCAPED"`), bare: true, root: true},
	{name: "new namespaces by clone3", script: perl(`my $a=pack("Q11",0x10000000,0,0,0,17,0,0,0,0,0,0); my $p=syscall(%clone3%,$a,88); exit 0 if $p==0; $p>0 and print "ESCAPED"`), bare: true, root: true},
	{name: "another parent", script: perl(`my $p=syscall(%clone%,0x8011,0,0,0,0); exit 0 if $p==0; $p>0 and print "ESCAPED"`), bare: true},
	{name: "another's namespaces", script: perl(`for my $p (1,@PARENT,@VICTIM) { for my $n ("mnt","net","pid","user") { open(F,"<","/proc/$p/ns/$n") && syscall(%setns%,fileno(F),0)==0 and print "ESCAPED" } }`)},
	{name: "rings around the filter", script: perl(`my $b="\0"x120; syscall(%io_uring%,8,$b)>=0 and print "ESCAPED"`)},
	{name: "calls that are refused", script: perl(`for my $n (@REFUSED) { $!=0; syscall($n,0,0,0,0,0,0); $!{EPERM} or print "ESCAPED $n $!\n" }`)},
	{name: "calls of another kind", script: `[ @ARCH != amd64 ] || ` + perl(`syscall(0x40000000+39); print "ESC","APED"`)},
	{name: "keys", script: perl(`syscall(%keyctl%,0,-3,0)>=0 and print "ESCAPED"`), bare: true},
	{name: "rights of a program", prepare: setuidProgram, script: `./id -u`, check: noSetuid},
	{name: "capabilities", script: `grep -E "^Cap(Prm|Eff|Bnd|Inh|Amb)" /proc/self/status | grep -v 0000000000000000 && echo ESCAPED; ` + perl(`open(F,">","/etc/hostname") and print "ESCAPED"; exec "true" if $<!=0; $)=1; $(=1; $>=1; $<=1; $<==1 and print "ESCAPED"`)},
	{name: "a terminal's input", script: perl(`for my $t ("/dev/tty","/dev/console","/dev/pts/0") { open(T,"+<",$t) && ioctl(T,0x5412,my $c="x") and print "ESCAPED" } ioctl(STDIN,0x5412,my $c="x") and print "ESCAPED"`)},
	{name: "shared memory", script: perl(`shmget(@TOKEN,4096,01666); msgget(@TOKEN,01666); semget(@TOKEN,1,01666)`), check: noSharedMemory},
	{name: "message queues", script: perl(`my $n="dragoman-@TOKEN"; syscall(%mq_open%,$n,0101,0666,0)>=0 and print "ESCAPED"`)},
	// What outlives the call.
	{name: "a child in the background", script: `sleep @TOKEN & echo begun`, bare: true},
	{name: "a child without output", script: `sleep @TOKEN >/dev/null 2>&1 </dev/null & disown -a`, bare: true},
	{name: "a child in a session of its own", script: `setsid sleep @TOKEN >/dev/null 2>&1 & setsid -f sleep @TOKEN`, bare: true},
	{name: "a child that is not to hear of it", script: `nohup sleep @TOKEN >/dev/null 2>&1 & sleep 0.2`, bare: true},
	{name: "a grandchild", script: `(trap "" HUP TERM INT; (sleep @TOKEN &) &)`, bare: true},
	{name: "a daemon", script: perl(`use POSIX; exit 0 if fork; POSIX::setsid(); exit 0 if fork; setpgrp(0,0); chdir "/"; POSIX::close($_) for 0..9; sleep 60 while 1; # @TOKEN`), bare: true},
	{name: "a child in another group", script: `set -m; sleep @TOKEN & sleep @TOKEN >/dev/null 2>&1 &`, bare: true},
	{name: "deaf to signals", script: `trap "" TERM INT HUP QUIT; while :; do sleep 0.1; done`, limits: Limits{Time: time.Second}, check: ended(ErrTime)},
	{name: "waiting for input", script: `cat; read x; perl -e "<STDIN>"; echo over`, check: says("over\n")},
	// More than one's share.
	{name: "a fork bomb", script: `:(){ :|:& };:; sleep 1`, limits: Limits{Processes: 20, Time: 3 * time.Second, Memory: 200 << 20}, check: ended(ErrProcesses, ErrTime, ErrMemory, nil)},
	{name: "processes beyond any number", script: perl(`my $n=0; for (1..1200) { my $p=fork; last unless defined $p; if (!$p) { sleep 20; exit } $n++ } print $n>700 ? "ESCAPED $n" : "held"; kill "KILL",0`), limits: Limits{Processes: 64, Time: 5 * time.Second}, check: ended(ErrProcesses, nil)},
	{name: "many processes", script: `for i in $(seq 60); do sleep @TOKEN & done; wait`, limits: Limits{Processes: 30, Time: 5 * time.Second}, check: bounded},
	{name: "much output", script: `head -c 30000000 /dev/zero; echo; echo the end`, check: says("the end\n")},
	{name: "output without end", script: `yes @TOKEN`, limits: Limits{Time: time.Second}, check: ended(ErrTime)},
	{name: "a large file", script: `head -c 20000000 /dev/zero >big; truncate -s 1T sparse; fallocate -l 20M full`, limits: Limits{FileSize: 1 << 20}, check: smallFiles},
	{name: "much memory", script: perl(`my $x="x"x400000000; print "ESCAPED"`), limits: Limits{Memory: 128 << 20}, bare: true},
	{name: "much memory in all", script: `for i in 1 2 3 4 5 6; do perl -e '$x="x"x40000000; sleep @TOKEN' & done; wait`, limits: Limits{Memory: 128 << 20, Time: 10 * time.Second}, check: ended(ErrMemory)},
	{name: "a dump of memory", script: `ulimit -c unlimited; perl -e 'kill SEGV,$$'; ls`, check: func(t *testing.T, s *scene, _ Outcome) {
		t.Helper()
		if files := s.files(t); len(files) > 0 {
			t.Errorf("there are %v", files)
		}
	}},
	{name: "limits raised", script: `for l in n f d u t c l q; do ulimit -$l unlimited 2>/dev/null; ulimit -$l 1000000000 2>/dev/null; done; [ "$(ulimit -n)" -le 256 ] && [ "$(ulimit -c)" = 0 ] && [ "$(ulimit -f)" != unlimited ] && echo held`, check: says("held\n")},
	{name: "a deep tree", script: `i=0; while [ $i -lt 300 ]; do mkdir d && cd d || break; i=$((i+1)); done; echo x >f; echo $i`, check: says("300\n")},
	{name: "bytes for a terminal", script: `printf 'a\000b\033[31mred\033[0m\033]0;title\007\377\r\n\302\233x\n'`, check: says("a?bred?\n?x\n")},
}

func ended(by ...error) func(*testing.T, *scene, Outcome) {
	return func(t *testing.T, _ *scene, o Outcome) {
		t.Helper()
		for _, err := range by {
			if errors.Is(o.Ended, err) || err == nil && o.Ended == nil {
				return
			}
		}
		t.Errorf("it ended by %v, want one of %v", o.Ended, by)
	}
}

func says(end string) func(*testing.T, *scene, Outcome) {
	return func(t *testing.T, _ *scene, o Outcome) {
		t.Helper()
		if !strings.HasSuffix(o.Output, end) || o.Ended != nil {
			t.Errorf("it says %q, ended by %v", o.Output, o.Ended)
		}
	}
}

// bounded: either it could not start them all, or it was ended for it.
func bounded(t *testing.T, _ *scene, o Outcome) {
	t.Helper()
	if !errors.Is(o.Ended, ErrProcesses) && !strings.Contains(o.Output, "Resource temporarily unavailable") {
		t.Errorf("%+v", o)
	}
}

func smallFiles(t *testing.T, s *scene, _ Outcome) {
	t.Helper()
	for _, name := range s.files(t) {
		if n := s.size(t, name); n > 1<<20 {
			t.Errorf("%s has %d bytes", name, n)
		}
	}
}

// setuidProgram puts a program into the workspace that belongs to somebody else
// and would run as them.
func setuidProgram(t *testing.T, s *scene) {
	t.Helper()
	if os.Geteuid() != 0 {
		return // only root can
	}
	data, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(s.workspace, "id")
	if err := errors.Join(os.WriteFile(file, data, 0o600), os.Chown(file, 4321, 4321), os.Chmod(file, 0o755|os.ModeSetuid|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
}

func noSetuid(t *testing.T, _ *scene, o Outcome) {
	t.Helper()
	if strings.Contains(o.Output, "4321") {
		t.Errorf("it runs as %s", o.Output)
	}
}

func noSharedMemory(t *testing.T, s *scene, _ Outcome) {
	t.Helper()
	for _, what := range []string{"-m", "-q", "-s"} {
		out, err := exec.CommandContext(t.Context(), "ipcs", what).Output()
		if err != nil {
			t.Skip(err)
		}
		if strings.Contains(string(out), "0x") && strings.Contains(string(out), s.hexToken()) {
			t.Errorf("it is left: %s", out)
		}
	}
}

// TestEscapes runs every attempt behind every wall this machine has and looks
// from outside at what came of it.
func TestEscapes(t *testing.T) {
	if _, err := lookPath("perl"); err != nil {
		sandboxtest.Missing(t, err) // some attempts are written in it
	}
	found := walls(t, Options{})
	for _, c := range candidates() {
		t.Run(c.name, func(t *testing.T) {
			if found[c.name] == nil {
				t.Skip("it does not hold here")
			}
			for _, a := range attempts {
				t.Run(a.name, func(t *testing.T) { a.try(t, c) })
			}
		})
	}
}

// try runs an attempt behind a wall.
func (a attempt) try(t *testing.T, c candidate) {
	t.Helper()
	s := newScene(t)
	if a.prepare != nil {
		a.prepare(t, s)
	}
	o := a.run(t, s, c)
	for _, e := range s.escaped(t, o, a.limits.orDefault()) {
		t.Errorf("%s", e)
	}
	if a.check != nil {
		a.check(t, s, o)
	}
	if t.Failed() {
		t.Logf("output: %.2000q, status %d, ended by %v, %v", o.Output, o.Status, o.Ended, o.Took)
	}
}

func (a attempt) run(t *testing.T, s *scene, c candidate) Outcome {
	t.Helper()
	options := Options{Limits: a.limits.orDefault(), Dir: s.dir}
	j, err := c.make(options)
	if err != nil {
		t.Fatal(err)
	}
	args, err := shell(s.fill(a.script))
	if err != nil {
		t.Fatal(err)
	}
	w := &Wall{name: c.name, limits: options.Limits, jail: j}
	o, err := w.Run(t.Context(), Command{Args: args, Workspace: s.workspace})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestAttemptsAreReal: without a wall the attempts go through, and are seen to.
func TestAttemptsAreReal(t *testing.T) {
	if os.Getenv("DRAGOMAN_TEST_WITHOUT_WALL") == "" {
		t.Skip("set DRAGOMAN_TEST_WITHOUT_WALL to try the harmless ones on this machine without a wall")
	}
	for _, a := range attempts {
		if !a.bare || a.root && unix.Geteuid() != 0 {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			s := newScene(t)
			t.Cleanup(func() { s.end(t) })
			o := a.run(t, s, candidate{"open", func(Options) (jail, error) { return open{}, nil }})
			if found := s.escaped(t, o, a.limits.orDefault()); len(found) == 0 {
				t.Errorf("it comes to nothing without a wall either: %.2000q", o.Output)
			}
		})
	}
}
