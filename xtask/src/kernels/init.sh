#!/busybox sh
# The first process of the guest, in its initramfs: mounts the host's root, read-only, below a layer in memory, and goes there.
export PATH=/
/busybox --install -s /
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module" || echo "@@ problem insmod $module"; done </modules/order

options=trans=virtio,version=9p2000.L,msize=524288
mkdir -p /host /layer /root /plain
mount -t 9p -o "ro,cache=loose,$options" host /host || { echo "@@ problem no root from the host"; poweroff -f; }
mount -t tmpfs -o mode=755 layer /layer
# A directory, below a layer in memory.
layered() {
    mkdir -p "/layer/upper$2" "/layer/work$2"
    mount -t overlay -o "lowerdir=$1,upperdir=/layer/upper$2,workdir=/layer/work$2" overlay "$2"
}
read -r system </system
layered "/host$system" /root
# The host's own files of these kinds are not ours.
for place in tmp run dev/shm; do
    mkdir -p "/root/$place"
    mount -t tmpfs -o mode=1777 "$place" "/root/$place"
done
chmod 755 /root/run
# Except for what is tested, wherever it lies. The host's root is seen already where it is the guest's system.
if [ "$system" = / ]; then mount --bind /root /plain; else layered /host /plain; fi
while read -r directory; do
    case $system:$directory in /:/tmp/* | /:/run/* | /?*:*)
        mkdir -p "/root$directory"
        mount --bind "/plain$directory" "/root$directory"
        ;;
    esac
done </directories
umount /plain

mkdir -p /root/run/forkless/work
cp /busybox /guest.sh /root/run/forkless/
mount -t 9p -o "rw,cache=none,$options" work /root/run/forkless/work || echo "@@ problem no share for results"
umount /proc /sys
mount --move /dev /root/dev
exec switch_root /root /run/forkless/busybox sh /run/forkless/guest.sh
