#!/bin/bash
# Process 1 of the machine: starts sshd and the agent, starts each again when it ends, and collects orphans.
# The agent starts HAProxy and keepalived, which outlive it.
set -u
export HOME=/root
cd /
read -r address </etc/management-address

# Better no machine than one without this; whoever makes it hears why.
/bin/bash /opt/krater/management.sh || exit 1

# Whatever was open towards the host is open no more.
exec </dev/null >/run/krater/log/init.log 2>&1
echo ready >&4 2>/dev/null
exec 4>&-
# When process 1 ends, the kernel ends all others.
trap 'exit 0' TERM INT

sysctl -q -e -p /etc/sysctl.conf

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
