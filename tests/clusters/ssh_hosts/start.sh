# What makes a container look like a machine to whoever comes by SSH, each time that it starts. What it may not do it
# says, and goes on. NO_SUDO, NO_PYTHON, ASK_PASSWORD (admin's), SKEW (seconds, of CLOCK_MONOTONIC): see ssh_hosts.py.
said() { echo "not here: $1"; }

[ -s /etc/machine-id ] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id

[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237 || said "/dev/loop-control"
for number in $(seq 0 63); do
    [ -e "/dev/loop$number" ] || mknod "/dev/loop$number" b 7 "$number" || said "/dev/loop$number"
done

# Whoever ends the container ends the mounts, but only a mount that is nobody else's is seen by nobody else.
mount --make-rprivate / || said "mounts of its own"
mount -o remount,rw /sys || said "/sys to be written"

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -o remount,rw /sys/fs/cgroup || said "cgroups to be written"
    # Controllers are handed down by cgroups that have no process.
    mkdir -p /sys/fs/cgroup/machine && for pid in $(cat /sys/fs/cgroup/cgroup.procs); do
        echo "$pid" >/sys/fs/cgroup/machine/cgroup.procs
    done 2>/dev/null
    echo "+io" >/sys/fs/cgroup/cgroup.subtree_control || said "limits of input and output"
else
    mount -t tmpfs -o size=1m cgroups /sys/fs/cgroup || said "cgroups"
    for controller in freezer blkio; do
        mkdir -p "/sys/fs/cgroup/$controller" &&
            mount -t cgroup -o "$controller" "$controller" "/sys/fs/cgroup/$controller" || said "cgroup $controller"
    done
fi

mkdir -p /home/admin/.ssh && echo "$AUTHORIZED_KEY" >/home/admin/.ssh/authorized_keys
chown -R admin: /home/admin/.ssh && chmod -R go= /home/admin/.ssh
[ -z "$NO_SUDO" ] || rm -f /usr/bin/sudo
[ -z "$NO_PYTHON" ] || rm -f /usr/bin/python3*
if [ -n "$ASK_PASSWORD" ]; then
    echo "admin:$ASK_PASSWORD" | chpasswd
    echo 'admin ALL=(ALL) ALL' >/etc/sudoers.d/admin
fi
unset ASK_PASSWORD AUTHORIZED_KEY

mkdir -p /run/sshd
sshd=(/usr/sbin/sshd -D -e -o UseDNS=no -o UsePAM=no -o PasswordAuthentication=no -o MaxStartups=200)
if [ -n "$SKEW" ]; then
    exec unshare --time --monotonic "$SKEW" --boottime "$SKEW" --fork --kill-child "${sshd[@]}"
fi
exec "${sshd[@]}"
