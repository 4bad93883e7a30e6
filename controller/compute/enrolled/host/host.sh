#!/bin/bash
# Runs the amphora of an enrolled host, as its service. The amphora has network, processes and mounts of its own; it sees
# the host's files. Its network has the interfaces that were given to it, whose addresses the host gets back at the end, and
# `mgmt0`, which leads to the forwarder (forward.pl) on this host, and by it to the controllers and nowhere else.
#   host.sh run      until a signal; started anew, it begins where the last one ended
#   host.sh leave    gives the interfaces back, and removes what the amphora has left
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/root
cd /
umask 022

network=krater-amphora
# What leads to the amphora is one end of a pair; the other one is mgmt0.
link=krater0 here=169.254.77.1 there=169.254.77.2 prefix=30
# The host's own files about this, which the amphora has no part in.
record=/var/lib/krater-host
left_behind=/run/krater/left-behind

# Lines `MAC NAME`: the interfaces of the amphora.
given() { grep -E '^[0-9a-f:]{17} [^ ]+$' /etc/krater/interfaces; }

# Files that an amphora writes.
written=(/run/krater /run/haproxy-root /var/lib/krater)

log() { echo "$*" >&2; }

in_network() { # COMMAND...: runs a command in the amphora's network
  nsenter --net="/run/netns/$network" "$@"
}

name_of() { # MAC [COMMAND...]: the name of the interface with this address; the command runs `ip` in some network
  local mac=$1
  shift
  "$@" ip -o link show | sed -nE "s/^[0-9]+: ([^@:]+)[@:].* link\/ether $mac .*/\1/p" | grep -vxF "$link" | head -n 1
}

# Lines `FAMILY COMMAND`, which give an interface the addresses and routes that it has now.
addresses_of() { # FAMILY NAME
  local words=() options at scope
  while read -ra words; do
    options='' scope=''
    for ((at = 4; at < ${#words[@]}; at++)); do
      case ${words[at]} in
      brd | peer) options+=" ${words[at]} ${words[at + 1]}" ;;
      valid_lft | preferred_lft) options+=" ${words[at]} ${words[at + 1]%sec}" ;;
      scope) scope=${words[at + 1]} ;;
      esac
    done
    [ "$scope" = link ] || echo "$1 address replace ${words[3]}$options dev $2"
  done < <(ip "-$1" -o address show dev "$2" | tr -s '\\ ' ' ')
}

routes_of() { # FAMILY NAME
  ip "-$1" -o route show dev "$2" | tr -s '\\ ' ' ' | grep -vE 'proto (kernel|ra|redirect)' |
    sed -E "s/ (expires [^ ]+|linkdown|dead)//g; s/^(.*[^ ]) *$/$1 route replace \1 dev $2/"
}

# They are written down before the interface first leaves the host. A file without its last line was interrupted.
write_down() { # NAME
  local file=$record/interfaces/$1 state=down
  ! tail -n 1 "$file" 2>/dev/null | grep -qx '# complete' || return 0
  (($(cat "/sys/class/net/$1/flags") & 1)) && state=up
  {
    echo "4 link set dev $1 mtu $(cat "/sys/class/net/$1/mtu") $state"
    for family in 4 6; do addresses_of $family "$1"; done
    for family in 4 6; do routes_of $family "$1"; done
    echo '# complete'
  } >"$file.new"
  sync "$file.new"
  mv "$file.new" "$file"
}

give_interfaces() { # moves what is still the host's into the amphora's network
  local mac name found
  while read -r mac name; do
    [ -z "$(name_of "$mac" in_network)" ] || continue
    found=$(name_of "$mac")
    if [ -z "$found" ]; then
      log "the interface $name ($mac) is not there"
      continue
    fi
    [ "$found" = "$name" ] || ip link set dev "$found" down name "$name"
    write_down "$name"
    ip link set dev "$name" netns "$network"
    in_network ip link set dev "$name" up
  done < <(given)
}

take_interfaces() { # moves them back, without any address
  [ -e "/run/netns/$network" ] || return 0
  local mac name found
  while read -r mac name; do
    found=$(name_of "$mac" in_network)
    [ -n "$found" ] || continue
    in_network ip link set dev "$found" down
    in_network ip address flush dev "$found" 2>/dev/null
    [ "$found" = "$name" ] || in_network ip link set dev "$found" name "$name"
    # Process 1 is in the host's own network.
    in_network ip link set dev "$name" netns 1
  done < <(given)
}

restore_interfaces() { # gives them what they had
  local file family
  for file in "$record"/interfaces/*; do
    case $file in *.new | *'*') continue ;; esac
    for family in 4 6; do sed -n "s/^$family //p" "$file" | ip "-$family" -force -batch -; done
    rm -f "$file"
  done
}

make_network() {
  [ -e "/run/netns/$network" ] || ip netns add "$network"
  in_network ip link set dev lo up
  if ! in_network ip link show dev mgmt0 >/dev/null 2>&1; then
    ip link delete dev "$link" 2>/dev/null
    ip link add name "$link" type veth peer name mgmt0 netns "$network"
  fi
  echo 1 >"/proc/sys/net/ipv6/conf/$link/disable_ipv6" 2>/dev/null
  ip address replace "$here/$prefix" dev "$link" 2>/dev/null
  ip link set dev "$link" up
  in_network ip address replace "$there/$prefix" dev mgmt0
  in_network ip link set dev mgmt0 up
  give_interfaces
}

remove_network() {
  take_interfaces
  # Both ends go at once, even while a socket with unsent data holds the network.
  ip link delete dev "$link" 2>/dev/null
  [ ! -e "/run/netns/$network" ] || ip netns delete "$network"
}

# What is still there after the amphora has ended and all of its files and its network were removed; prints nothing if
# there is nothing.
look() {
  local path pid
  for path in "${written[@]}"; do [ ! -e "$path" ] || echo "$path is still there"; done
  [ ! -e "/run/netns/$network" ] || echo 'the network of the former amphora is still there'
  for pid in $(pgrep -f '/run/krater/config/' || true); do
    [ "$pid" = $$ ] || echo "the process $pid still runs: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-100)"
  done
}

# Nothing of the former amphora may reach the next one: not even what a program of it left in files or the network.
wipe() {
  local found
  remove_network
  rm -rf "${written[@]}"
  found=$(look)
  make_run_directory
  if [ -n "$found" ]; then
    log "left behind: $found"
    echo "$found" >"$left_behind"
  fi
}

make_run_directory() {
  [ -d /run/krater ] || install -d -m 710 -g krater /run/krater
  [ -d /run/krater/log ] || install -d -m 700 /run/krater/log
}

# A request to become another amphora is complete once boot.json has taken its place.
become() {
  [ -e /etc/krater/boot.next.json ] || return 0
  wipe
  mv /etc/krater/boot.next.json /etc/krater/boot.json
  sync /etc/krater
}

start_forwarder() {
  perl /opt/krater/forward.pl "$here" /etc/krater/controllers </dev/null 8>&- &
  forwarder=$!
}

start_machine() {
  make_run_directory
  cp -p /etc/krater/boot.json /run/krater/boot.json
  # File 4 is where init.sh says that it is ready; nobody waits for it here. The host may be an emulated machine.
  PATIENCE=40 setpriv --pdeathsig KILL nsenter --net="/run/netns/$network" \
    unshare --mount --pid --ipc --uts --fork --kill-child --mount-proc \
    /bin/bash -c 'mount -t sysfs -o nosuid,nodev,noexec sysfs /sys; exec /bin/bash /opt/krater/init.sh without-sshd' \
    3<"$lock" 4>/dev/null 8>&- </dev/null &
  machine=$!
}

end_machine() {
  local first
  first=$(cat "/proc/$machine/task/$machine/children" 2>/dev/null)
  # The kernel ends everything in it together with its process 1.
  kill -KILL ${first%% *} "$machine" 2>/dev/null
  wait "$machine" 2>/dev/null
}

run() {
  mkdir -p -m 700 "$record/interfaces"
  lock=$record/lock
  exec 8>>"$lock"
  flock --nonblock 8 || { log 'the amphora of this host runs already'; exit 75; }
  machine='' forwarder=''
  trap '[ -z "$machine" ] || end_machine; [ -z "$forwarder" ] || kill "$forwarder"; exit 0' TERM INT
  while :; do
    if [ -z "$machine" ] || ! kill -0 "$machine" 2>/dev/null; then
      become
      make_network
      start_machine
    fi
    if [ -z "$forwarder" ] || ! kill -0 "$forwarder" 2>/dev/null; then start_forwarder; fi
    wait -n "$machine" "$forwarder"
    # Whatever ends at once must not keep a processor busy.
    sleep 0.3
  done
}

case ${1-} in
run) run ;;
leave)
  exec 8>>"$record/lock"
  flock --wait 30 8 || { log 'the amphora of this host still runs'; exit 75; }
  remove_network
  restore_interfaces
  rm -rf "${written[@]}"
  found=$(look)
  [ -z "$found" ] || { log "$found"; exit 1; }
  ;;
*)
  log 'usage: host.sh run | leave'
  exit 64
  ;;
esac
