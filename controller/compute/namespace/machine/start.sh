#!/bin/bash
# Runs outside the machine and becomes the process that holds it: the machine ends when this process does.
#   start.sh MACHINE_DIRECTORY KEEPER AMPHORA_FILES NODE AGENT_BUNDLE FIRST_ACCOUNT BLOCKS BLOCK CONTROL_GROUP...
# KEEPER is a process in the user and network namespaces of the machine. AMPHORA_FILES is images/amphora.
# Files: 0 the boot data (see furnish.sh), 3 the machine's lock, 4 the pipe for reporting readiness.
set -eu
umask 022
directory=$1 keeper=$2 files=$3 node=$4 agent=$5 first=$6 blocks=$7 block=$8
shift 8
here=$(cd -- "$(dirname -- "$0")" && pwd)

flock --nonblock 3 || { echo 'this machine is already running' >&2; exit 75; }

# Only the holder of the lock writes this file, so it always names the process that holds the machine.
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/self/stat
fields=(${stat##*) })
echo "$$ ${fields[19]} $boot" >"$directory/process.new"
mv "$directory/process.new" "$directory/process"

# Closes any other files inherited from the controller.
for fd in /proc/self/fd/*; do
  fd=${fd##*/}
  [ "$fd" -le 4 ] || [ "$fd" = 255 ] || exec {fd}>&- || true
done

# The machine's uids and gids 0 to 7 map to eight consecutive ones on the host, reserved while the holder has
# their lock.
locks=/run/krater-accounts
mkdir -p -m 700 "$locks"
for ((tried = 0; ; tried++)); do
  [ "$tried" -lt "$blocks" ] || { echo 'all uids and gids for machines are in use' >&2; exit 1; }
  accounts=$((first + 8 * ((block + tried) % blocks)))
  # A machine created by an earlier version uses four, which may be the second half of these.
  exec 5>>"$locks/$accounts" 7>>"$locks/$((accounts + 4))"
  ! flock --nonblock 5 || ! flock --nonblock 7 || break
done
echo "0 $accounts 8" >"/proc/$keeper/uid_map"
echo "0 $accounts 8" >"/proc/$keeper/gid_map"
# Opened here, because the path does not exist inside the machine.
exec 6<"/proc/$keeper/ns/user"

for group in "$@"; do echo 0 >"$group/cgroup.procs"; done

# Only the hard limit: HAProxy raises its soft limit itself. Core files would contain private keys. The control
# group limits processes; a per-user limit would also apply to the machine's root, which is not the host's.
ulimit -Hn 1048576 2>/dev/null || true
ulimit -c 0
ulimit -u unlimited 2>/dev/null || true
# Pending timers and signals also count against the host's root, the creator of the user namespace.
ulimit -i 1024
cd /
exec nsenter --net="/proc/$keeper/ns/net" \
  unshare --mount --pid --uts --ipc ${1:+--cgroup} --fork --kill-child \
  /bin/bash "$here/furnish.sh" "$files" "$directory" "$node" "$agent" "$accounts"
