#!/usr/bin/env bash
# Runs a command beside a libvirtd of its own, for a machine that runs none:
#   scripts/with-libvirt.sh [--state DIRECTORY] COMMAND [ARGUMENT...]
# libvirtd and its virtual machines, networks and firewall rules live in namespaces of their own, which have no way out,
# and end with the command. Disks and definitions stay in DIRECTORY (default: .vagrant/libvirt in the checkout), so a
# later run finds the machines switched off.
set -euo pipefail

fail() { echo "with-libvirt.sh: $*" >&2; exit 1; }

if [ "${1-}" != --inside ]; then
  state=$(dirname "$(dirname "$(realpath "$0")")")/.vagrant/libvirt
  if [ "${1-}" = --state ]; then
    [ -n "${2-}" ] || fail 'which directory?'
    state=$2
    shift 2
  fi
  [ $# -gt 0 ] || fail 'which command? For example: scripts/with-libvirt.sh bash'
  [ "$(id -u)" = 0 ] || fail 'this needs root, for namespaces and networks'
  command -v libvirtd >/dev/null || fail 'libvirtd is missing: apt-get install libvirt-daemon-system libvirt-clients'
  mkdir -p "$state"
  exec 9>"$state/lock"
  flock --nonblock 9 || fail "another run uses $state"
  # Ctrl-C is for the command alone. unshare itself would not notice that it is to end.
  trap '' INT QUIT
  env --default-signal=INT,QUIT setpriv --pdeathsig KILL \
    unshare --mount --pid --net --ipc --fork --kill-child --mount-proc \
    bash "$0" --inside "$(realpath "$state")" "$@" <&0 &
  world=$!
  trap 'kill -KILL "$world"; exit 143' TERM
  trap 'kill -KILL "$world"; exit 129' HUP
  status=0
  wait "$world" || status=$?
  exit "$status"
fi

state=$2
shift 2
export LIBVIRT_DEFAULT_URI=qemu:///system
mount --make-rprivate /
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
for place in /etc/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
  mkdir -p "$state$place" "$place"
  mount --bind "$state$place" "$place"
done
ip link set dev lo up
echo 1 >/proc/sys/net/ipv4/ip_forward

# The namespaces keep machines and host apart. QEMU runs as root, because the disks belong to whoever called this.
cat >/etc/libvirt/qemu.conf <<'END'
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
END
cat >/etc/libvirt/libvirtd.conf <<'END'
auth_unix_ro = "none"
auth_unix_rw = "none"
END

# In a session of its own, it outlives the Ctrl-C that the command may answer.
setsid libvirtd 9>&- >/var/log/libvirt/libvirtd.log 2>&1 &
daemon=$!
for ((tried = 0; ; tried++)); do
  ! virsh --quiet version >/dev/null 2>&1 || break
  kill -0 "$daemon" 2>/dev/null && [ "$tried" -lt 100 ] ||
    fail "libvirtd does not answer; its log: $state/var/log/libvirt/libvirtd.log"
  sleep 0.1
done
pool() { virsh --quiet "pool-$1" default "${@:2}"; }
[[ $(virsh --quiet pool-list --all --name) == *default* ]] || pool define-as dir --target /var/lib/libvirt/images
mkdir -p /var/lib/libvirt/images
[[ $(virsh --quiet pool-list --name) == *default* ]] || pool start

status=0
"$@" || status=$?
exit "$status"
