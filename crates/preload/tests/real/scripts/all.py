import os, signal, subprocess, sys
def show(*what): print(*what, flush=True)
def ended(pid): return os.waitpid(pid, 0)[1]
for line in ["uname -s", "echo one; echo two", "exit 3", "nonesuch", "kill -9 $$", "ls /nonexistent"]:
    show(line, os.system(line))
env = dict(os.environ, OWN="value x")
r, w = os.pipe()
show(ended(os.posix_spawn("/bin/sh", ["sh", "-c", "echo $OWN; exit 7"], env, file_actions=[(os.POSIX_SPAWN_DUP2, w, 1)])))
os.close(w); show(os.read(r, 100))
show(ended(os.posix_spawnp("sh", ["sh", "-c", "ps -o pgid= -p $$ | tr -d ' 0-9'; kill -TERM $$"], env, setpgroup=0,
    setsigdef=[signal.SIGPIPE], setsigmask=[signal.SIGUSR1])))
show(ended(os.posix_spawn("/bin/cat", ["cat"], env, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "script.py", os.O_RDONLY, 0)])))
os.set_inheritable(r, True)
show(ended(os.posix_spawn("/bin/sh", ["sh", "-c", f"test -e /dev/fd/{r}"], env, file_actions=[(os.POSIX_SPAWN_CLOSE, r)])))
for bad in ["/nonexistent", "/", "script.py"]:
    try: os.posix_spawn(bad, ["x"], env)
    except OSError as error: show(error)
show(subprocess.run(["/bin/grep", "-c", "show"], stdin=open("script.py"), capture_output=True, close_fds=False))
show(subprocess.run(["cat"], input=b"forked", capture_output=True))
show(os.popen("uname -s").read())
sys.exit(9)
