# Prints what there is on a host, and changes nothing. Runs as root, from standard input; then a line with the address from
# which the controller came, a line with the network between a host and its amphora, and lines `udp PORT` and `tcp PORT` for what
# the forwarder of the host will listen on. Each line of output is a name and its value; facts.ts reads them.
# Those that host.sh has moved into the network of an amphora, with the addresses that they get back. It writes a file of their
# name before they leave.
lent_interfaces() {
  local network=/run/netns/krater-amphora name mac file
  [ -e "$network" ] || return 0
  nsenter --net="$network" ip -o link show | sed -nE 's/^[0-9]+: ([^@: ]+)[@:].* link\/ether ([0-9a-f:]{17}) .*$/\1 \2/p' |
    while read -r name mac; do
      file=/var/lib/krater-host/interfaces/$name
      [ -e "$file" ] || continue
      echo "interface $name $mac"
      sed -nE 's/^[46] address replace ([0-9a-f.:]+\/[0-9]+) .*$/address '"$name"' \1/p' "$file"
    done
}

# Those ports that a program of the host has on every address of it, and so on that of the forwarder too.
ports_in_use() {
  local kind port
  while read -r kind port; do
    cat "/proc/net/$kind" "/proc/net/${kind}6" 2>/dev/null |
      awk -v port="$(printf ':%04X' "$port")" -v kind="$kind" \
        '$2 ~ "^0+" port "$" && (kind == "udp" || $4 == "0A") { found = 1 } END { exit !found }' &&
      echo "port $kind $port"
  done
}

facts() {
  local client between name unit path line family
  export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
  IFS= read -r client
  IFS= read -r between
  echo "uid $(id -u)"
  for name in ID VERSION_ID; do
    echo "system.$name $(sed -nE "s/^$name=\"?([A-Za-z0-9._-]*)\"?\$/\1/p" /etc/os-release 2>/dev/null | head -n 1)"
  done
  echo "architecture $(uname -m)"
  echo "hostname $(uname -n | tr -cd 'A-Za-z0-9._-' | cut -c 1-63)"
  echo "machine $(tr -cd '0-9a-f' </etc/machine-id 2>/dev/null | cut -c 1-32)"
  echo "time $(date +%s)"
  [ ! -d /run/systemd/system ] || echo 'init systemd'
  echo "memory $(sed -nE 's/^MemTotal: +([0-9]+) kB$/\1/p' /proc/meminfo)"
  echo "disk $(df -Pk /opt 2>/dev/null | awk 'NR == 2 { print $4 }')"
  for name in apt-get dpkg ip nsenter unshare setpriv perl sshd systemctl bash; do
    ! command -v "$name" >/dev/null || echo "program $name"
  done
  ! unshare --net --mount --pid --fork true 2>/dev/null || echo 'namespaces yes'
  [ ! -s /var/lib/krater-host/owner ] || echo "owner $(head -n 1 /var/lib/krater-host/owner | tr -cd '0-9a-f -')"
  ! getent passwd krater >/dev/null || echo "account krater"
  for path in /opt/krater /etc/krater /etc/management-address /run/netns/krater-amphora; do
    [ ! -e "$path" ] || echo "path $path"
  done
  grep -qiE '^[[:space:]]*Include[[:space:]]+"?/etc/ssh/sshd_config\.d/\*\.conf' /etc/ssh/sshd_config && echo 'sshd.includes yes'
  for name in haproxy keepalived; do
    # Those of an amphora are in a network of their own.
    for path in $(pgrep -x "$name"); do
      [ "$(readlink "/proc/$path/ns/net")" != "$(readlink /proc/self/ns/net)" ] || echo "runs $name"
    done
    [ "$(systemctl is-enabled "$name.service" 2>/dev/null)" != enabled ] || echo "enabled $name"
  done
  echo "route.client $(ip -o route get "$client" 2>/dev/null | sed -nE 's/^.* dev ([^ ]+) .*$/\1/p')"
  for family in 4 6; do
    ip "-$family" -o route show default | sed -nE 's/^.* dev ([^ ]+).*$/route.default \1/p'
  done
  ip -o link show | sed -nE 's/^[0-9]+: ([^@: ]+)[@:].* link\/ether ([0-9a-f:]{17}) .*$/\1 \2/p' | while read -r name path; do
    line="interface $name $path"
    [ ! -e "/sys/class/net/$name/master" ] || line+=" master"
    [ -z "$(find "/sys/class/net/$name/" -maxdepth 1 -name 'upper_*' 2>/dev/null)" ] || line+=" below"
    [ "$(cat "/sys/class/net/$name/carrier" 2>/dev/null)" = 1 ] || line+=" dark"
    echo "$line"
  done
  for family in 4 6; do
    ip "-$family" -o address show scope global | sed -nE 's/^[0-9]+: ([^ ]+) +inet6? ([0-9a-f.:]+\/[0-9]+) .*$/address \1 \2/p'
  done
  lent_interfaces
  # krater0 is ours.
  [ -z "$(ip -4 -o route show root "$between" | grep -v 'dev krater0 ')" ] || echo "taken $between"
  ports_in_use
  echo 'end'
}
facts
