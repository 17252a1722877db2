# The first process of the guest, in the host's root: makes the system that tests expect, runs the jobs in turn, and ends the guest.
# Lines that begin with @@ are read by the host.
here=/run/forkless
work=$here/work
box() { "$here/busybox" "$@"; }

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root USER=root LOGNAME=root LANG=C.UTF-8 TMPDIR=/tmp
box mount -t proc proc /proc
box mount -t sysfs sys /sys
box mkdir -p /dev/pts /dev/shm
box mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
box mount -t tmpfs -o mode=1777 shm /dev/shm
for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
    box ln -snf "${link#*:}" "/dev/${link%%:*}"
done
box mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in $(box cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
{ read -r copy; read -r built; } <"$work/programs"
box mount --bind "$copy" "$built"
box ip link set lo up
box hostname forkless
# As a service manager sets them.
ulimit -Hn 524288
ulimit -Sn 1024

echo "@@ up $(box uname -r) $(box cat /proc/uptime)"
for job in "$work"/jobs/*.sh; do
    name=${job##*/}
    name=${name%.sh}
    read -r limit <"$work/jobs/$name.limit"
    echo "@@ begin $name"
    read -r begun rest </proc/uptime
    : >"$here/output"
    "$here/busybox" tail -f "$here/output" >/dev/console &
    shown=$!
    box setsid "$here/busybox" timeout -s KILL "$limit" /bin/bash "$job" </dev/null >"$here/output" 2>&1
    status=$?
    read -r ended rest </proc/uptime
    box sleep 1
    kill $shown
    wait $shown 2>/dev/null
    box cp "$here/output" "$work/results/$name.log"
    echo "$status ${begun%.*} ${ended%.*}" >"$work/results/$name.status"
    echo "@@ end $name $status $((${ended%.*} - ${begun%.*}))"
done
box dmesg >"$work/results/dmesg"
echo "@@ done"
box sync
box poweroff -f
