#!/bin/bash
# Process 1 of a virtual machine. Takes over the seed of the first boot, sets up the management interface, and runs
# init.sh, which runs the amphora.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
umask 022
cd /

mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t tmpfs -o nosuid,nodev,mode=755,size=25% run /run
mount -t tmpfs -o nosuid,nodev,mode=1777,size=10% tmp /tmp
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777,size=10% shm /dev/shm
mkdir -m 755 /run/sshd
mkdir -m 710 /run/krater
mkdir -m 700 /run/krater/log
chgrp krater /run/krater

# On each console that the kernel uses: /dev/console is only the last of them.
say() {
  local console
  for console in $(</sys/class/tty/console/active); do
    echo "krater: $*" >"/dev/$console"
  done
}

end() { # poweroff | reboot
  trap '' TERM INT USR1 USR2
  sync
  mount -o remount,ro / 2>/dev/null
  exec busybox "$1" -f
}

# What busybox's poweroff, reboot and halt send, and Ctrl-Alt-Del.
trap 'end poweroff' USR1 USR2
trap 'end reboot' TERM INT

fail() {
  say "$*; powering off"
  # Whoever looks at a screen needs a moment to read it; a serial console is kept.
  case $(</sys/class/tty/console/active) in *tty0*) sleep 15 ;; *) sleep 1 ;; esac
  end poweroff
}

seed_disk() { # prints the device of the seed, if there is one
  local device label
  for device in /dev/vd[a-z] /dev/sd[a-z]; do
    [ -b "$device" ] && IFS= read -r -d '' -n 10 label <"$device" 2>/dev/null && [ "$label" = KRATERSEED ] || continue
    echo "$device"
    return
  done
}

# A file of the seed is complete on the disk, or not there at all. The last one tells that all are there.
take_over() { # DEVICE
  local name file mode seed=/run/krater/seed
  mkdir -m 700 "$seed"
  tar -C "$seed" -xf "$1" || return 1
  rm -f /etc/krater/boot.json
  while read -r mode name file; do
    install -D -m "$mode" "$seed/$name" "$file.new" && sync "$file.new" && mv "$file.new" "$file" || return 1
  done <<'FILES'
600 host-key /etc/ssh/ssh_host_ed25519_key
644 controller-key /etc/ssh/authorized_keys/krater
644 operator-key /etc/ssh/authorized_keys/root
644 management-address /etc/management-address
644 management-mac /etc/management-mac
644 management-prefix /etc/management-prefix
644 hostname /etc/hostname
644 name-servers /etc/resolv.conf
600 boot /etc/krater/boot.json
FILES
  sync
  rm -rf "$seed"
  : >/run/krater/seed.used
}

interface_with() { # MAC: prints the name of the interface
  local path tried
  for ((tried = 0; tried < 100; tried++)); do
    for path in /sys/class/net/*; do
      [ "$(<"$path/address")" != "$1" ] || { echo "${path##*/}"; return 0; }
    done
    sleep 0.1
  done
  return 1
}

seed=$(seed_disk)
if [ -n "$seed" ]; then
  take_over "$seed" || fail 'the seed disk cannot be taken over'
fi
[ -e /etc/krater/boot.json ] || fail 'this machine was never given its keys: its first boot needs a seed disk'

hostname -F /etc/hostname
read -r address </etc/management-address
read -r prefix </etc/management-prefix
read -r mac </etc/management-mac
ip link set dev lo up
interface=$(interface_with "$mac") || fail "there is no interface with the MAC address $mac"
[ "$interface" = mgmt0 ] || ip link set dev "$interface" name mgmt0
case $address in *:*) once=nodad ;; *) once= ;; esac
ip address add "$address/$prefix" dev mgmt0 $once
ip link set dev mgmt0 up
cp -p /etc/krater/boot.json /run/krater/boot.json

# No core files: they would contain private keys.
ulimit -c 0
ulimit -n 1048576
# It may be all that still answers.
while :; do /bin/bash /opt/krater/evidence.sh; sleep 60; done </dev/null >/dev/console 2>&1 &
# init.sh reports to file 4 once the management interface is isolated.
PATIENCE=40 /bin/bash /opt/krater/init.sh </dev/null >/dev/console 2>&1 4>/dev/console &
init=$!
while kill -0 "$init" 2>/dev/null; do wait "$init"; done
say 'the init of the amphora ended; restarting'
end reboot
