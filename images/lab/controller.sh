#!/bin/bash
# Makes a machine of the lab its controller: controller.sh MANAGEMENT_ADDRESS LAN_PREFIX. Safe to run again.
set -euo pipefail
management=$1 lan=$2
LIMIT_SECONDS=1800

# The first start writes these to krater.yaml; `krater settings` changes them there.
cat >/etc/default/krater <<END
KRATER_COMPUTE_DRIVER=enrolled
KRATER_COMPUTE_WARM_AMPHORAE=0
KRATER_HOST_ADDRESS=$management
KRATER_LOAD_BALANCER_TOPOLOGY=ACTIVE_STANDBY
KRATER_NETWORK_OUTSIDE=false
KRATER_NETWORK_PHYSICAL_NETWORKS=lan:eth2
END

is_up() {
  case $(systemctl is-active krater) in
  active) ;;
  # After `krater settings --restart`, it runs without systemd.
  inactive) curl -sfo /dev/null http://127.0.0.1:9696/ ;;
  *) return 1 ;;
  esac
}

systemctl enable --quiet krater
is_up || systemctl start --no-block krater
# On a computer that is short of time, a start may fail; systemd then repeats it.
until is_up; do
  [ "$SECONDS" -lt "$LIMIT_SECONDS" ] || { journalctl --no-pager --lines 20 --unit krater >&2; exit 1; }
  sleep 2
done

source /var/lib/krater/admin-openrc
openstack subnet show lan >/dev/null 2>&1 || {
  openstack network show lan >/dev/null 2>&1 ||
    openstack network create lan --share --provider-network-type flat --provider-physical-network lan
  openstack subnet create lan --network lan --subnet-range "$lan.0/24" --gateway "$lan.1" \
    --allocation-pool "start=$lan.100,end=$lan.199"
}

# Made last: with it, hosts are enrolled.
[ -e /root/.ssh/id_ed25519.pub ] || ssh-keygen -q -t ed25519 -N '' -C "$(uname -n)" -f /root/.ssh/id_ed25519
