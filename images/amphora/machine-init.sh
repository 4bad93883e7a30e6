#!/bin/bash
# Process 1 of a virtual machine, whose file systems are mounted. Takes over the seed of the first boot, sets up the
# management interface, and runs init.sh, which runs the amphora.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
umask 022
cd /

install -d -m 710 -g krater /run/krater
mkdir -m 700 /run/krater/log

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

# Few programs: each start of one takes a twentieth of a second in an emulated machine. The last file tells that all of
# them are there, complete.
take_over() { # DEVICE
  local ssh=etc/ssh etc=etc/krater
  rm -f /$etc/boot.json
  tar -C / --no-same-owner --touch -xf "$1" \
    --transform="s:^host-key\$:$ssh/ssh_host_ed25519_key:" --transform="s:^controller-key\$:$ssh/authorized_keys/krater:" \
    --transform="s:^operator-key\$:$ssh/authorized_keys/root:" --transform="s:^boot\$:$etc/boot.json.new:" \
    --transform='s:^management-:etc/management-:' --transform='s:^hostname$:etc/hostname:' \
    --transform='s:^name-servers$:etc/resolv.conf:' \
    host-key controller-key operator-key boot management-{address,mac,prefix} hostname name-servers &&
    chmod 644 /$ssh/authorized_keys/{krater,root} /etc/management-{address,mac,prefix} /etc/hostname /etc/resolv.conf &&
    sync && mv /$etc/boot.json.new /$etc/boot.json && sync && : >/run/krater/seed.used
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

read -r name </etc/hostname
echo "$name" >/proc/sys/kernel/hostname
read -r address </etc/management-address
read -r prefix </etc/management-prefix
read -r mac </etc/management-mac
interface=$(interface_with "$mac") || fail "there is no interface with the MAC address $mac"
case $address in *:*) once=nodad ;; *) once= ;; esac
ip -force -batch - <<COMMANDS
link set dev lo up
link set dev $interface name mgmt0
address add $address/$prefix dev mgmt0 $once
link set dev mgmt0 up
COMMANDS
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
