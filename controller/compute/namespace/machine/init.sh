#!/bin/bash
# Process 1 of the machine: starts sshd and the agent, starts each again when it ends, and collects orphans.
# The agent starts HAProxy and keepalived, which outlive it.
set -u
export HOME=/root
cd /
read -r address </etc/management-address

# A machine on a tenant's network could send packets for the management address to one of the other cards. Better no machine than one
# without this; whoever makes it hears why.
case $address in *:*) protocol=ip6 ;; *) protocol=ip ;; esac
nft -f - <<RULES || exit 1
table inet krater_management {
  chain input {
    type filter hook input priority filter; policy accept;
    iifname != { "lo", "mgmt0" } $protocol daddr $address drop
  }
}
RULES

# Whatever was open towards the host is open no more.
exec </dev/null >/run/krater/log/init.log 2>&1
echo ready >&4 2>/dev/null
exec 4>&-
# When process 1 ends, the kernel ends all others.
trap 'exit 0' TERM INT

sysctl -q -e -p /etc/sysctl.conf

# Tenants name the members that HAProxy connects to: neither other machines of the management network nor this one's own sshd are
# any of theirs. The kernel asks for its own addresses before any other rule, so that rule moves behind ours.
haproxy=$(id -u haproxy)
for family in 4 6; do
  ip -$family rule add priority 60 table local && ip -$family rule delete priority 0
  ip -$family route show dev mgmt0 scope link | while read -r subnet _; do
    ip -$family rule add priority 50 uidrange "$haproxy-$haproxy" to "$subnet" prohibit
  done
done

log_of() { # NAME: the file for what a program prints; what grew too long is begun anew
  local file=/run/krater/log/$1.out
  [ ! -f "$file" ] || [ "$(stat -c %s "$file")" -lt 262144 ] || : >"$file"
  echo "$file"
}

start_sshd() {
  /usr/sbin/sshd -D -e -o "ListenAddress=$address" </dev/null >>"$(log_of sshd)" 2>&1 &
  sshd=$!
}

start_agent() {
  /opt/krater/node --max-semi-space-size=1 --max-old-space-size=256 --optimize-for-size /opt/krater/agent.mjs \
    </dev/null >>"$(log_of agent)" 2>&1 &
  agent=$!
}

start_sshd
start_agent
while :; do
  wait -n "$sshd" "$agent"
  sleep 0.3
  kill -0 "$sshd" 2>/dev/null || start_sshd
  kill -0 "$agent" 2>/dev/null || start_agent
done
