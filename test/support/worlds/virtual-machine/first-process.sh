#!/bin/bash
# Process 1 of the virtual machine: starts sshd and reaps orphans.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/pts /dev/shm /run/sshd
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ln -s /proc/self/fd /dev/fd
hostname vm
modprobe -a virtio_net virtio-rng
ip link set lo up
# QEMU's network for users: the host is 10.0.2.2.
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
/usr/sbin/sshd -f /etc/ssh/sshd_config -E /dev/console
while :; do sleep infinity & wait; done
