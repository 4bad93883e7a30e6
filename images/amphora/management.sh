#!/bin/bash
# Isolates the management interface from all others, whatever tenants' networks look like. Safe to run again.
# Order of routing rules: 50 what HAProxy may not reach, 60 the machine's own addresses, 70 the management table,
# then the rest.
set -eu
read -r address </etc/management-address
interface=mgmt0 table=10

# Tenants have machines on the other interfaces, so packets to and from the management address may only use its own
# interface.
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

apply() { # FAMILY COMMANDS: for ip, one a line. What is there already, or not any more, is no fault.
  local line output
  ip "-$1" -batch - <<<"$2" 2>/dev/null && return
  while read -r line; do
    output=$(ip "-$1" $line 2>&1) || [[ $output == *'File exists'* || $line == 'rule delete'* ]] ||
      { echo "$output" >&2; return 1; }
  done <<<"$2"
}

# A link-local IPv6 address of the interface would be another way to the host.
case $address in *:*) ;; *) echo 1 >/proc/sys/net/ipv6/conf/$interface/disable_ipv6 2>/dev/null || true ;; esac

haproxy=$(id -u haproxy)
case $address in *:*) own=6 ;; *) own=4 ;; esac
for family in 4 6; do
  [ $family = 4 ] || [ -e /proc/net/if_inet6 ] || continue
  # By default, the local table comes before any other rule. It moves behind what HAProxy may not reach.
  # Covers link-local addresses, which specify the interface.
  commands="rule add priority 60 table local
rule add priority 50 uidrange $haproxy-$haproxy oif $interface prohibit
rule delete priority 0"
  while read -r subnet _; do
    case $subnet in fe80:*) continue ;; esac
    # Tenants choose the members that HAProxy connects to. These must not be machines on the management network or this
    # machine's own sshd.
    commands+="
rule add priority 50 uidrange $haproxy-$haproxy to $subnet prohibit
rule add priority 70 to $subnet table $table
route replace $subnet dev $interface table $table"
  done < <(ip -$family route show dev $interface proto kernel)
  [ $family != $own ] || commands+="
rule add priority 70 from $address table $table"
  apply $family "$commands"
done
