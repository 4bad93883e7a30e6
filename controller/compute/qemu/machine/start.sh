#!/bin/bash
# Runs outside the machine and becomes the process that holds it: the machine ends when this process does.
#   start.sh MACHINE_DIRECTORY NAMESPACE FIRST_ACCOUNT BLOCKS BLOCK KERNEL INITRD DISK KIB CONTROL_GROUP... -- QEMU...
# NAMESPACE is the file of a network namespace, KIB what the file of the machine's disk may have. QEMU... is the program
# with its arguments (command-line.ts).
# Files: 0 the seed disk as a line `seed BASE64`, then the line `end`; 3 the machine's lock; 4 the pipe for reporting
# readiness; for QEMU 10 its monitor, 11 the machine's disk, 12 the image's, 13 the seed disk, 14 the socket
# of the machine's second serial line.
set -eu
umask 022
directory=$1 namespace=$2 first=$3 blocks=$4 block=$5 kernel=$6 initrd=$7 disk=$8 most=$9
shift 9
here=$(cd -- "$(dirname -- "$0")" && pwd)

. "$here/../../host/holder.sh"
hold "$directory"
take_accounts "$first" "$blocks" "$block"
# The interfaces belong to it.
echo "$accounts" >"$directory/account"

while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs"; shift; done
shift

# Core files would contain private keys.
ulimit -c 0
ulimit -Hn 4096 2>/dev/null || true
ulimit -u unlimited 2>/dev/null || true
# The file system of the disk is the controller's too.
ulimit -f "$most"

# Neither QEMU nor what copies its output has any right on the host.
confined="setpriv --reuid $accounts --regid $accounts --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"

# It leaves at once what it was started by: the only child of the holder is the machine.
copy=$(<"$here/console.pl")
exec 8<>"$directory/console"
exec > >(exec 3>&- 4>&- 5>&- 7>&- >&8 8>&- 2>/dev/null; exec $confined perl -e "$copy" 262144) 2>&1 8>&-
wait $!

exec 11<>"$directory/disk.qcow2" 12<"$disk"
cd /
exec perl "$here/listen.pl" "$directory" monitor 10 \
  perl "$here/listen.pl" "$directory" evidence 14 \
  nsenter --net="$namespace" \
  unshare --mount --pid --uts --ipc --fork --kill-child \
  /bin/bash "$here/furnish.sh" "$directory" "$accounts" "$kernel" "$initrd" $confined "$@"
