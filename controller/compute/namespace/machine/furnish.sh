#!/bin/bash
# Creates the machine's root in memory and moves into it. It shares only the /usr of an image, or the host's, read-only.
#   furnish.sh AMPHORA_FILES MACHINE_DIRECTORY IMAGE_ROOT NODE AGENT_BUNDLE FIRST_ACCOUNT
# AMPHORA_FILES is images/amphora. IMAGE_ROOT is the root file system of an image, which has these files itself, or empty.
# Runs as the host's root until its last line, with the host's uids: the machine's uid 0 is FIRST_ACCOUNT.
# File 6 is the machine's user namespace. Process 1 inherits file 3, the machine's lock, opened again.
# Standard input: a line `NAME BASE64` for each individual or secret file of the machine, then the line `end`.
# If `end` is missing, the creator died, and the machine ends too.
set -eu
exec 3<"$2/lock" 5>&- 7>&-
files=$1 directory=$2 image=$3 node=$4 agent=$5 accounts=$6
# Group ids in etc/group.
krater=1 tty=5
root=$directory/root

mount -t tmpfs -o size=256m,nr_inodes=20k,mode=755,nosuid amphora "$root"
cd "$root"
mkdir -m 755 usr etc dev proc sys run var opt mnt
mkdir -m 1777 tmp
mkdir -m 700 root
mkdir -p var/lib var/log var/empty opt/krater etc/krater etc/ssh etc/ssl etc/haproxy run/sshd

share() { # SOURCE TARGET: mounts a directory or file read-only, if it exists
  [ -e "$1" ] || return 0
  if [ -d "$1" ]; then mkdir -p "$2"; else : >"$2"; fi
  mount -o bind,ro,nosuid,nodev "$1" "$2"
}

share "$image/usr" usr
for name in bin sbin lib lib32 lib64 libx32; do
  if [ -L "$image/$name" ]; then ln -s "$(readlink "$image/$name")" "$name"; else share "$image/$name" "$name"; fi
done
share "$node" opt/krater/node
share "$agent" opt/krater/agent.mjs

# An image has its own version of each of them, which is as old as its agent.
[ -z "$image" ] || files=$image/opt/krater
cp -R "$files/etc/." etc/
cp "$files"/*.sh opt/krater/
for name in ld.so.cache ld.so.conf services protocols localtime; do
  [ ! -e "$image/etc/$name" ] || cp -P "$image/etc/$name" "etc/$name"
done
# The agent asks them over the tenants' networks where to ask about certificates.
grep -s '^nameserver' /etc/resolv.conf >etc/resolv.conf || true
share "$image/etc/ld.so.conf.d" etc/ld.so.conf.d
share "$image/etc/alternatives" etc/alternatives
share "$image/etc/haproxy/errors" etc/haproxy/errors
# Not all of /etc/ssl: its folder `private` contains the host's keys.
share "$image/etc/ssl/certs" etc/ssl/certs
share "$image/etc/ssl/openssl.cnf" etc/ssl/openssl.cnf

# Read-only protects the modes and owners of the host's device files. Writing to the devices still works.
for name in null zero full random urandom tty; do
  : >"dev/$name"
  mount -o bind,ro,nosuid,noexec "/dev/$name" "dev/$name"
done
mkdir dev/pts
mkdir -m 1777 dev/shm
mount -t devpts -o newinstance,nosuid,noexec,gid=$((accounts + tty)),mode=620,ptmxmode=666,max=64 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr

mount -t proc -o nosuid,nodev,noexec proc proc
# Root could change the host's kernel and hardware through /proc and /sys, and take over files there. Only the settings
# of the machine's own network stay writable.
mount -o bind proc/sys/net proc/sys/net
mount -o remount,bind,rw,nosuid,nodev,noexec proc/sys/net
# inotify instances also count against the host's root, the creator of the user namespace, and keepalived needs one. The
# limits keep one amphora from using up those of the others.
nsenter --user=/proc/self/fd/6 /bin/sh -ec \
  'echo 8 >proc/sys/user/max_inotify_instances; echo 256 >proc/sys/user/max_inotify_watches'
mount -o remount,bind,ro,nosuid,nodev,noexec proc
mount -t sysfs -o nosuid,nodev,noexec sysfs sys
mount -o remount,bind,ro,nosuid,nodev,noexec sys

mkdir -m 711 etc/ssh/authorized_keys
mkdir -m 710 run/krater
mkdir -m 700 run/krater/log
complete=
while read -r name content; do
  case $name in
  end) complete=yes ;;
  host-key) file=etc/ssh/ssh_host_ed25519_key mode=600 ;;
  controller-key) file=etc/ssh/authorized_keys/krater mode=644 ;;
  operator-key) file=etc/ssh/authorized_keys/root mode=644 ;;
  boot) file=etc/krater/boot.json mode=600 ;;
  management-address) file=etc/management-address mode=644 ;;
  hostname) file=etc/hostname mode=644 ;;
  seccomp) file=opt/krater/seccomp.pl mode=644 ;;
  *) echo "unknown file $name" >&2; exit 1 ;;
  esac
  [ -z "$complete" ] || break
  (umask 077; base64 -d <<<"$content" >"$file")
  chmod "$mode" "$file"
done
exec </dev/null
[ -n "$complete" ] || { echo 'the boot data is incomplete' >&2; exit 1; }
# The agent reads this copy; process 1 restores it if it is removed.
cp -p etc/krater/boot.json run/krater/boot.json
hostname -F etc/hostname

# The machine owns its root, but nothing mounted on it: this bind mount excludes other mounts.
mkdir .host
mount --bind . .host
chown -hR "$accounts:$accounts" .host
umount .host
chown ":$((accounts + krater))" run/krater

: >"$directory/ready"
pivot_root . .host
cd /
umount -l /.host
rmdir /.host

# Only the capabilities that an amphora needs. Without SYS_ADMIN, its mounts are fixed; without MKNOD and
# DAC_READ_SEARCH, the host's disks are unreachable.
needed=+chown,+dac_override,+fowner,+kill,+setgid,+setuid,+net_bind_service,+net_admin,+net_raw,+sys_chroot
# Capabilities apply only in the machine's user namespace, so they cover no network but its own, not even one behind its
# interfaces. Entering the user namespace clears the parent-death signal, which setpriv sets again.
# env -i keeps the controller's environment out of the machine.
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 nsenter --user=/proc/self/fd/6 \
  setpriv --pdeathsig KILL --no-new-privs --inh-caps=-all --bounding-set="-all,$needed" perl /opt/krater/seccomp.pl /bin/bash /opt/krater/init.sh
