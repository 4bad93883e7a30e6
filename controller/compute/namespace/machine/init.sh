#!/bin/bash
# Process 1 of the machine: starts sshd and the agent, starts each again when it ends or answers nobody, and collects orphans.
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

start_sshd() {
  state
  /usr/sbin/sshd -D -e -o "ListenAddress=$address" </dev/null >>"$(log_of sshd)" 2>&1 7>&- &
  sshd=$! waited=0
}

start_agent() {
  state
  /opt/krater/node --max-semi-space-size=1 --max-old-space-size=256 --optimize-for-size /opt/krater/agent.mjs \
    </dev/null >>"$(log_of agent)" 2>&1 7>&- &
  # A busy machine may take seconds until it answers for the first time.
  agent=$! unanswered=-6
}

# Many machines share a host, so looking at the two starts no program, and reads no more than the sockets that listen: they come first.
sshd_hangs() {
  local stat table here status queues queue=none
  read -r stat <"/proc/$sshd/stat" || return 1
  stat=${stat##*) }
  [[ $stat != [Tt]* ]] || return 0
  for table in tcp tcp6; do
    while read -r _ here _ status queues _; do
      [[ $status = 0A || $status = st ]] || break
      [[ $here != *:0016 ]] || queue=${queues#*:}
    done <"/proc/net/$table"
  done
  # Somebody who just came waits for an instant; nobody waits for long but at a door where nobody opens.
  if [ "$queue" = 00000000 ]; then waited=0; else waited=$((waited + 1)); fi
  [ "$waited" -ge 3 ]
}

# The agent asks itself on its socket every 2 s, and touches a file when it has answered.
agent_hangs() {
  if [ /run/krater/agent.answered -nt /run/krater/init.looked ]; then unanswered=0; else unanswered=$((unanswered + 1)); fi
  : >/run/krater/init.looked
  # Without its socket it cannot answer.
  [ -S /run/krater/agent.sock ] || unanswered=$((unanswered + 1))
  [ "$unanswered" -ge 3 ]
}

look() {
  if sshd_hangs; then kill -KILL "$sshd"; fi
  if agent_hangs; then kill -KILL "$agent"; fi
}

# Nobody writes into this pipe: to read from it is to wait.
exec 7<> <(:)
start_pause() {
  (read -rt 2 <&7) &
  pause=$!
}

start_sshd
start_agent
start_pause
while :; do
  wait -n "$sshd" "$agent" "$pause"
  if ! kill -0 "$pause" 2>/dev/null; then look; start_pause; continue; fi
  sleep 0.3
  kill -0 "$sshd" 2>/dev/null || start_sshd
  kill -0 "$agent" 2>/dev/null || start_agent
done
