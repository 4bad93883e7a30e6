#!/bin/bash
# The init of an amphora: starts sshd and the agent, restarts them when they end, kills an agent that hangs, and reaps
# orphans. The agent starts HAProxy and keepalived, which outlive it, and kills an sshd that hangs. In a namespace, this
# is process 1.
#   init.sh [without-sshd]
# An enrolled host has an sshd of its own, outside of the machine.
set -u
export HOME=/root
cd /
read -r address </etc/management-address

# A namespace's holder may have ended before the parent-death signal was set; then the machine's lock is free.
[ ! -e /proc/$$/fd/3 ] || ! flock --nonblock 3 || exit 1
exec 3<&- 6<&-

# A machine without these rules must not run. Its creator gets the error message.
/bin/bash /opt/krater/management.sh || exit 1

# Closes all files that were open towards the host.
exec </dev/null >/run/krater/log/init.log 2>&1
echo ready >&4 2>/dev/null
exec 4>&-
# When a namespace's process 1 ends, the kernel kills all other processes.
trap 'exit 0' TERM INT

settings=/opt/krater/sysctl.conf
[ -e $settings ] || settings=/etc/sysctl.conf
sysctl -q -e -p $settings

state() { # restores the state directory if it is missing
  [ -d /run/krater ] || install -d -m 710 -g krater /run/krater
  [ -d /run/krater/log ] || install -d -m 700 /run/krater/log
  [ -e /run/krater/boot.json ] || cp -p /etc/krater/boot.json /run/krater/boot.json
}

log_of() { # NAME: prints the path of a program's output file; truncates the file if it is too long
  local file=/run/krater/log/$1.out
  [ ! -f "$file" ] || [ "$(stat -c %s "$file")" -lt 262144 ] || : >"$file"
  echo "$file"
}

record() { # LINE: records a repair for the load balancer's history; the agent reports it
  state
  echo "$1" >>/run/krater/init.repairs
}

start_sshd() {
  state
  /usr/sbin/sshd -D -e -o "ListenAddress=$address" </dev/null >>"$(log_of sshd)" 2>&1 7>&- &
  sshd=$!
}

# Looks, every 2 s, without the agent's first answer: on a busy host it takes seconds, and in an emulated machine a minute.
readonly MOST_PATIENCE=300
least_patience=${PATIENCE:-6} patience=$least_patience

start_agent() {
  state
  /bin/bash /opt/krater/agent.sh </dev/null >>"$(log_of agent)" 2>&1 7>&- &
  agent=$! unanswered=-$patience
}

record_end() { # before the agent starts again
  if [ -L /opt/krater/agents/trial ]; then
    record 'the new management process did not answer; the former one is back'
  elif [ ! -L /opt/krater/agents/next ]; then
    record 'the management process exited unexpectedly; restarted'
  fi
}

# The agent touches a file every 3 s while it answers its own requests on its socket. If the socket is missing, a
# restart recreates it, along with anything else that was removed.
agent_hangs() {
  local stat
  read -r stat <"/proc/$agent/stat" || return 1
  [[ ${stat##*) } != [Tt]* ]] || return 0
  if [ /run/krater/agent.answered -nt /run/krater/init.looked ] && [ -S /run/krater/agent.sock ]; then
    unanswered=0 patience=$least_patience
  else
    unanswered=$((unanswered + 1))
  fi
  : >/run/krater/init.looked
  [ "$unanswered" -ge 3 ]
}

# Many machines share a host: one permanent process that sends a signal costs less than a new one for each pause.
# Nothing writes to its pipe, so reading from it only waits.
exec 7<> <(:)
trap 'is_due=yes' USR1
start_clock() {
  (trap - TERM INT; while :; do read -rt 2 <&7; kill -USR1 $$; done) &
  clock=$!
}

runs() { # [PID]: true without one
  [ -z "$1" ] || kill -0 "$1" 2>/dev/null
}

sshd=
[ "${1-}" = without-sshd ] || start_sshd
start_agent
start_clock
is_due=
while :; do
  wait -n $sshd "$agent" "$clock"
  if [ -n "$is_due" ]; then
    is_due=
    if agent_hangs; then
      record 'the management process hung; killed'
      kill -KILL "$agent"
      # A host may be so busy that it only takes longer.
      [ $patience -ge $MOST_PATIENCE ] || patience=$((2 * patience))
    fi
  fi
  if runs "$sshd" && runs "$agent" && runs "$clock"; then continue; fi
  sleep 0.3
  runs "$clock" || start_clock
  runs "$sshd" || { start_sshd; record 'sshd exited unexpectedly; restarted'; }
  runs "$agent" || { record_end; start_agent; }
done
