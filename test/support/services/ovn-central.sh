# Starts the middle of an OVN: its databases and ovn-northd. Its files, and those with PIDs, are in DIRECTORY.
#   bash ovn-central.sh DIRECTORY SOUTHBOUND...
# SOUTHBOUND is where hypervisors reach the southbound database, as ovsdb-server(1) writes it.
set -e
directory=$1
shift
export OVS_RUNDIR=$directory OVN_RUNDIR=$directory
start() {
  local name=$1
  shift
  "$@" --detach --no-chdir --pidfile="$directory/$name.pid" --log-file="$directory/$name.log"
}
for name in nb sb; do ovsdb-tool create "$directory/$name.db" /usr/share/ovn/ovn-$name.ovsschema; done
start nb ovsdb-server "$directory/nb.db" --remote="punix:$directory/nb.sock"
start sb ovsdb-server "$directory/sb.db" --remote="punix:$directory/sb.sock" "${@/#/--remote=}"
ovn-nbctl --db="unix:$directory/nb.sock" init
ovn-sbctl --db="unix:$directory/sb.sock" init
start northd ovn-northd --ovnnb-db="unix:$directory/nb.sock" --ovnsb-db="unix:$directory/sb.sock"
