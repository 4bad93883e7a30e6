#!/bin/bash
# Creates the root in which QEMU runs: it has the host's /usr, read-only, the machine's kernel, and few devices. All other
# files come as open ones.
#   furnish.sh MACHINE_DIRECTORY ACCOUNT KERNEL INITRD PROGRAM...
# Runs as the host's root until its last line. If the line `end` is missing from the standard input, the creator died, and
# the machine ends too.
set -eu
exec 3>&- 5>&- 7>&-
directory=$1 account=$2 kernel=$3 initrd=$4
shift 4
root=$directory/root

mount --make-rprivate /
mount -t tmpfs -o size=16m,nr_inodes=1k,mode=755,nosuid machine "$root"
cd "$root"
mkdir -m 755 usr etc dev dev/net proc .host

share() { # SOURCE TARGET: mounts a directory or file of the host read-only, if it exists
  [ -e "$1" ] || return 0
  if [ -d "$1" ]; then mkdir -p "$2"; else : >"$2"; fi
  mount -o bind,ro,nosuid,nodev "$1" "$2"
}

share /usr usr
for name in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$name" ]; then ln -s "$(readlink "/$name")" "$name"; else share "/$name" "$name"; fi
done
[ ! -e /etc/ld.so.cache ] || cp /etc/ld.so.cache etc/
share "$kernel" kernel
share "$initrd" initrd

device() { # NAME: a device of the host, for QEMU alone
  [ -c "/dev/$1" ] || return 0
  mknod -m 600 "dev/$1" c $((16#$(stat -c %t "/dev/$1"))) $((16#$(stat -c %T "/dev/$1")))
  chown "$account:$account" "dev/$1"
}
for name in null urandom net/tun; do device "$name"; done
# Where it does not work, it would be a way into the host's kernel and no more.
[[ " $* " != *' -accel kvm '* ]] || device kvm

complete=
while read -r name content; do
  case $name in
  end) complete=yes ;;
  seed) (umask 077; base64 -d <<<"$content" >seed) ;;
  *) echo "unknown file $name" >&2; exit 1 ;;
  esac
  [ -z "$complete" ] || break
done
[ -n "$complete" ] || { echo 'the boot data is incomplete' >&2; exit 1; }
# In memory, and without a name: it is gone when QEMU closes it.
exec 13<seed </dev/null
rm seed
content=

mount -t proc -o nosuid,nodev,noexec proc proc
pivot_root . .host
cd /
umount -l /.host
umount /proc
mount -o remount,ro machine / 2>/dev/null || true
echo ready >&4
exec 4>&- 6>&- 255>&- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
