#!/bin/bash
# Process 1 of the machine: starts sshd and the agent, starts each again when it ends, ends an agent that answers nobody, and collects orphans.
# The agent starts HAProxy and keepalived, which outlive it, and ends an sshd that answers nobody.
set -u
export HOME=/root
cd /
read -r address </etc/management-address

# The holder may have ended just before the order to end with it was given: then nobody has the machine's lock.
! flock --nonblock 3 || exit 1
exec 3<&- 6<&-

# Better no machine than one without this; whoever makes it hears why.
/bin/bash /opt/krater/management.sh || exit 1

# Whatever was open towards the host is open no more.
exec </dev/null >/run/krater/log/init.log 2>&1
echo ready >&4 2>/dev/null
exec 4>&-
# When process 1 ends, the kernel ends all others.
trap 'exit 0' TERM INT

sysctl -q -e -p /etc/sysctl.conf

state() { # makes the state directory again when somebody has removed it
  [ -d /run/krater ] || install -d -m 710 -g krater /run/krater
  [ -d /run/krater/log ] || install -d -m 700 /run/krater/log
  [ -e /run/krater/boot.json ] || cp -p /etc/krater/boot.json /run/krater/boot.json
}

log_of() { # NAME: the file for what a program prints; what grew too long is begun anew
  local file=/run/krater/log/$1.out
  [ ! -f "$file" ] || [ "$(stat -c %s "$file")" -lt 262144 ] || : >"$file"
  echo "$file"
}

told() { # LINE: for the load balancer's history; the agent that runs then passes it on
  state
  echo "$1" >>/run/krater/init.repairs
}

start_sshd() {
  state
  /usr/sbin/sshd -D -e -o "ListenAddress=$address" </dev/null >>"$(log_of sshd)" 2>&1 7>&- &
  sshd=$!
}

start_agent() {
  state
  /opt/krater/node --max-semi-space-size=1 --max-old-space-size=256 --optimize-for-size /opt/krater/agent.mjs \
    </dev/null >>"$(log_of agent)" 2>&1 7>&- &
  # A busy machine may take seconds until it answers for the first time.
  agent=$! unanswered=-6
}

# The agent touches a file every 3 s, for as long as it answers what it asks itself on its socket. Without its socket it cannot answer; it makes that
# again by itself, with all else that somebody may have removed with it.
agent_hangs() {
  local stat
  read -r stat <"/proc/$agent/stat" || return 1
  [[ ${stat##*) } != [Tt]* ]] || return 0
  if [ /run/krater/agent.answered -nt /run/krater/init.looked ] && [ -S /run/krater/agent.sock ]; then
    unanswered=0
  else
    unanswered=$((unanswered + 1))
  fi
  : >/run/krater/init.looked
  [ "$unanswered" -ge 3 ]
}

# Many machines share a host: one process for good that wakes this one up costs less than one for each pause. Nobody writes into its pipe:
# to read from it is to wait.
exec 7<> <(:)
trap 'is_due=yes' USR1
start_clock() {
  (trap - TERM INT; while :; do read -rt 2 <&7; kill -USR1 1; done) &
  clock=$!
}

runs() { # PID
  kill -0 "$1" 2>/dev/null
}

start_sshd
start_agent
start_clock
is_due=
while :; do
  wait -n "$sshd" "$agent" "$clock"
  if [ -n "$is_due" ]; then
    is_due=
    if agent_hangs; then
      told 'the agent answered nobody: it is killed'
      kill -KILL "$agent"
    fi
  fi
  if runs "$sshd" && runs "$agent" && runs "$clock"; then continue; fi
  sleep 0.3
  runs "$clock" || start_clock
  runs "$sshd" || { start_sshd; told 'sshd had ended: it is started again'; }
  runs "$agent" || { start_agent; told 'the agent had ended: it is started again'; }
done
