#!/bin/bash
# Runs outside of the machine and becomes the process that holds it: as long as this process lives, so does the machine.
#   start.sh MACHINE_DIRECTORY KEEPER NODE AGENT_BUNDLE FIRST_ACCOUNT BLOCKS BLOCK CONTROL_GROUP...
# KEEPER is a process in the user and network namespaces of the machine.
# Open files: 0 the boot data (see furnish.sh), 3 the lock of the machine, 4 where readiness is reported.
set -eu
umask 022
directory=$1 keeper=$2 node=$3 agent=$4 first=$5 blocks=$6 block=$7
shift 7
here=$(cd -- "$(dirname -- "$0")" && pwd)

flock --nonblock 3 || { echo 'this machine is running already' >&2; exit 75; }

# Only the holder of the lock writes the record, so it always names the process that matters.
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/self/stat
fields=(${stat##*) })
echo "$$ ${fields[19]} $boot" >"$directory/process.new"
mv "$directory/process.new" "$directory/process"

# Whatever else the controller's own parent left open stays outside.
for fd in /proc/self/fd/*; do
  fd=${fd##*/}
  [ "$fd" -le 4 ] || [ "$fd" = 255 ] || exec {fd}>&- || true
done

# What are accounts 0 to 7 in the machine are eight numbers in a row on the host, the machine's own as long as its holder has their lock.
locks=/run/krater-accounts
mkdir -p -m 700 "$locks"
for ((tried = 0; ; tried++)); do
  [ "$tried" -lt "$blocks" ] || { echo 'every account is some other machine'"'"'s' >&2; exit 1; }
  accounts=$((first + 8 * ((block + tried) % blocks)))
  # A machine made by an earlier version has four numbers, which may be the second half of these.
  exec 5>>"$locks/$accounts" 7>>"$locks/$((accounts + 4))"
  ! flock --nonblock 5 || ! flock --nonblock 7 || break
done
echo "0 $accounts 8" >"/proc/$keeper/uid_map"
echo "0 $accounts 8" >"/proc/$keeper/gid_map"
# Opened here, for inside of the machine no path leads to it.
exec 6<"/proc/$keeper/ns/user"

for group in "$@"; do echo 0 >"$group/cgroup.procs"; done

# The hard limit only: HAProxy raises its own from it. Core files would hold private keys. Processes are limited by the control group: the limit of
# an account would hold for the machine's root, which is not the host's.
ulimit -Hn 1048576 2>/dev/null || true
ulimit -c 0
ulimit -u unlimited 2>/dev/null || true
# Timers and signals that wait count for the host's root too, who made the user namespace.
ulimit -i 1024
cd /
exec nsenter --net="/proc/$keeper/ns/net" \
  unshare --mount --pid --uts --ipc ${1:+--cgroup} --fork --kill-child \
  /bin/bash "$here/furnish.sh" "$here" "$directory" "$node" "$agent" "$accounts"
