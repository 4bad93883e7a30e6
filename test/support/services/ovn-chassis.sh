# Makes a machine a hypervisor of an OVN: Open vSwitch and ovn-controller. Their files, and those with PIDs, are in
# DIRECTORY; the switch's database is at DIRECTORY/db.sock.
#   bash ovn-chassis.sh DIRECTORY NAME ADDRESS SOUTHBOUND DATAPATH
# ADDRESS is that of the machine on the network of the tunnels, DATAPATH system (the kernel's) or netdev.
set -e
directory=$1 name=$2 address=$3 southbound=$4 datapath=$5
export OVS_RUNDIR=$directory OVN_RUNDIR=$directory
start() { "$@" --detach --no-chdir --pidfile="$directory/$1.pid" --log-file="$directory/$1.log"; }
vsctl() { ovs-vsctl --db="unix:$directory/db.sock" --no-wait "$@"; }
mkdir -p "$directory"
ovsdb-tool create "$directory/conf.db" /usr/share/openvswitch/vswitch.ovsschema
start ovsdb-server "$directory/conf.db" --remote="punix:$directory/db.sock"
vsctl init
vsctl set open_vswitch . "external-ids:system-id=$name" "external-ids:ovn-remote=$southbound" \
  external-ids:ovn-encap-type=geneve "external-ids:ovn-encap-ip=$address" \
  "external-ids:ovn-bridge-datapath-type=$datapath"
start ovs-vswitchd "unix:$directory/db.sock"
start ovn-controller "unix:$directory/db.sock"
