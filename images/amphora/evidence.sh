#!/bin/bash
# Tells the host of a virtual machine what the machine carries, over a serial line: that needs no network and no agent.
#   evidence.sh [LINE]
# Each line that comes is a question; the answer, JSON in one line, begins with it:
#   {"question":"4f1c","haproxy":[{"pid":80,"parent":1,"state":"S"}],"ports":[22,80],"tables":["krater_datagrams"]}
#   haproxy  HAProxy's processes, with the states of /proc
#   ports    of listening TCP sockets
#   tables   nftables' of the family inet
# If any part fails, as it may without memory, there is no answer: a part that is cut short would look like a dead HAProxy.
# So only nft needs a process of its own.
set -u
line=${1:-/dev/ttyS1}
[ -c "$line" ] && stty -F "$line" raw -echo || exit 0
exec 3<>"$line"

# Each of these sets the variable of its name, with a comma before each entry.

processes() {
  local file stat complete=
  processes=
  for file in /proc/[0-9]*/stat; do
    if ! read -r stat 2>/dev/null <"$file"; then
      # Most likely it has ended.
      [ ! -e "$file" ] || return 1
      continue
    fi
    # This one is there for sure.
    [ "$file" != "/proc/$$/stat" ] || complete=yes
    [[ $stat =~ ^([0-9]+)' (haproxy) '([A-Za-z])' '([0-9]+)' ' ]] || continue
    processes+=",{\"pid\":${BASH_REMATCH[1]},\"parent\":${BASH_REMATCH[3]},\"state\":\"${BASH_REMATCH[2]}\"}"
  done
  [ -n "$complete" ]
}

ports() {
  local file socket sockets
  ports=
  for file in /proc/net/tcp /proc/net/tcp6; do
    # Below a title. Those that listen come first, before the connections, which may be very many.
    mapfile -t -n 500 sockets <"$file" && [[ ${sockets[0]-} == *local_address* ]] || return 1
    for socket in "${sockets[@]}"; do
      # Hexadecimal local address and port, remote address and port, then the state; 0A is LISTEN.
      [[ $socket =~ :([0-9A-F]{4})' '[0-9A-F]+':0000 0A ' ]] || continue
      ports+=,$((16#${BASH_REMATCH[1]}))
    done
  done
}

tables() {
  local list name
  tables=
  list=$(nft list tables inet) || return 1
  for name in ${list//table inet/}; do tables+=",\"$name\""; done
}

# With -n, bash takes no more than this question from the line: others must not get into what it reads from /proc.
while read -r -n 64 question <&3; do
  [[ $question =~ ^[0-9a-f]{1,32}$ ]] && processes && ports && tables || continue
  printf '{"question":"%s","haproxy":[%s],"ports":[%s],"tables":[%s]}\n' \
    "$question" "${processes#,}" "${ports#,}" "${tables#,}" >&3
done
