#!/bin/bash
# Runs outside of the machine and becomes the process that holds it: as long as this process lives, so does the machine.
#   start.sh MACHINE_DIRECTORY NETWORK_NAMESPACE_FILE NODE AGENT_BUNDLE
# Open files: 0 the boot data (see furnish.sh), 3 the lock of the machine, 4 where readiness is reported.
set -eu
umask 022
directory=$1 namespace=$2
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

# The hard limit only: HAProxy raises its own from it. Core files would hold private keys.
ulimit -Hn 1048576 2>/dev/null || true
ulimit -c 0
cd /
exec nsenter --net="$namespace" \
  unshare --mount --pid --uts --ipc --fork --kill-child \
  /bin/bash "$here/furnish.sh" "$here" "$directory" "$3" "$4"
