#!/bin/bash
# Tells the host of a virtual machine what the machine carries, over a serial line: that needs no network and no agent.
# Each line that comes is a question; the answer, JSON in one line, begins with it:
#   {"question":"4f1c","haproxy":[{"pid":80,"parent":1,"state":"S"}],"ports":[22,80],"tables":["krater_datagrams"]}
#   haproxy  HAProxy's processes, with the states of /proc
#   ports    of listening TCP sockets
#   tables   nftables' of the family inet
set -u
line=/dev/ttyS1
[ -c $line ] && stty -F $line raw -echo || exit 0
exec 3<>$line

processes() {
  local file stat state parent rest
  for file in /proc/[0-9]*/stat; do
    read -r stat 2>/dev/null <"$file" && [[ $stat == *' (haproxy) '* ]] || continue
    read -r state parent rest <<<"${stat##*) }"
    printf ',{"pid":%d,"parent":%d,"state":"%s"}' "${stat%% *}" "$parent" "$state"
  done
}

ports() {
  local address rest
  ss -Hltn | while read -r _ _ _ address rest; do printf ',%d' "${address##*:}"; done
}

tables() {
  local name rest
  nft list tables inet | while read -r _ _ name rest; do printf ',"%s"' "$name"; done
}

while read -r question <&3; do
  [[ $question =~ ^[0-9a-f]{1,32}$ ]] || continue
  haproxy=$(processes) listening=$(ports) kernel=$(tables)
  printf '{"question":"%s","haproxy":[%s],"ports":[%s],"tables":[%s]}\n' \
    "$question" "${haproxy#,}" "${listening#,}" "${kernel#,}" >&3
done
