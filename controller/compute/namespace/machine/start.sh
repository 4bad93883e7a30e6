#!/bin/bash
# Runs outside the machine and becomes the process that holds it: the machine ends when this process does.
#   start.sh MACHINE_DIRECTORY KEEPER AMPHORA_FILES IMAGE_ROOT NODE AGENT_BUNDLE FIRST_ACCOUNT BLOCKS BLOCK CONTROL_GROUP...
# KEEPER is a process in the user and network namespaces of the machine. For the others see furnish.sh.
# Files: 0 the boot data (see furnish.sh), 3 the machine's lock, 4 the pipe for reporting readiness.
set -eu
umask 022
directory=$1 keeper=$2 files=$3 image=$4 node=$5 agent=$6 first=$7 blocks=$8 block=$9
shift 9
here=$(cd -- "$(dirname -- "$0")" && pwd)

. "$here/../../host/holder.sh"
hold "$directory"

# The machine's uids and gids 0 to 7 map to eight consecutive ones on the host.
take_accounts "$first" "$blocks" "$block"
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
  /bin/bash "$here/furnish.sh" "$files" "$directory" "$image" "$node" "$agent" "$accounts"
