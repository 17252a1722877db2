#!/busybox sh
# The first process of the guest, in its initramfs: mounts the host's root, read-only, below a layer in memory, and goes there.
export PATH=/
/busybox --install -s /
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module" || echo "@@ problem insmod $module"; done </modules/order

options=trans=virtio,version=9p2000.L,msize=524288
mkdir -p /host /layer /root
mount -t 9p -o "ro,cache=loose,$options" host /host || { echo "@@ problem no root from the host"; poweroff -f; }
mount -t tmpfs -o mode=755 layer /layer
mkdir -p /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root
# The host's own files of these kinds are not ours.
for place in tmp run dev/shm; do
    mkdir -p "/root/$place"
    mount -t tmpfs -o mode=1777 "$place" "/root/$place"
done
chmod 755 /root/run
# Except for what is tested, wherever it lies.
mkdir -p /plain
mount --bind /root /plain
while read -r directory; do
    case $directory in /tmp/* | /run/*)
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
