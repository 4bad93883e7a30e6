#!/bin/bash
# Keeps the management interface apart from all others, whatever tenants say of their networks. It may run again at any time.
# Routing asks in this order: 50 what HAProxy may not reach, 60 the machine's own addresses, 70 the management table, then all else.
set -eu
read -r address </etc/management-address
interface=mgmt0 table=10

# Tenants have machines beside the other interfaces: packets for the management address enter and leave by its own interface only.
case $address in *:*) protocol=ip6 ;; *) protocol=ip ;; esac
nft -f - <<RULES
table inet krater_management
delete table inet krater_management
table inet krater_management {
  chain input {
    type filter hook input priority filter; policy accept;
    iifname != { "lo", "$interface" } $protocol daddr $address drop
  }
  chain output {
    type filter hook output priority filter; policy accept;
    oifname != { "lo", "$interface" } $protocol saddr $address drop
    oifname "$interface" $protocol saddr != $address drop
  }
}
RULES

rule() { # FAMILY RULE...: adds a rule that may be there already
  local said
  said=$(ip "-$1" rule add "${@:2}" 2>&1) || [[ $said == *'File exists'* ]] || { echo "$said" >&2; return 1; }
}

# An IPv6 address that the interface gives itself would be one more way to the host.
case $address in *:*) ;; *) echo 1 >/proc/sys/net/ipv6/conf/$interface/disable_ipv6 2>/dev/null || true ;; esac

haproxy=$(id -u haproxy)
for family in 4 6; do
  [ $family = 4 ] || [ -e /proc/net/if_inet6 ] || continue
  # The kernel asks for its own addresses before any other rule: that one moves behind what HAProxy may not reach.
  rule $family priority 60 table local
  # A link-local address names its interface.
  rule $family priority 50 uidrange "$haproxy-$haproxy" oif $interface prohibit
  ip -$family rule delete priority 0 2>/dev/null || true
  while read -r subnet _; do
    case $subnet in fe80:*) continue ;; esac
    # Tenants name the members that HAProxy connects to: neither other machines of the management network nor this one's own sshd are
    # any of theirs.
    rule $family priority 50 uidrange "$haproxy-$haproxy" to "$subnet" prohibit
    rule $family priority 70 to "$subnet" table $table
    ip -$family route replace "$subnet" dev $interface table $table
  done < <(ip -$family route show dev $interface proto kernel)
done
case $address in *:*) family=6 ;; *) family=4 ;; esac
rule $family priority 70 from "$address" table $table
