# Makes a host one that carries amphorae. Runs as root, from standard input; then lines `NAME BASE64` with what it needs, and
# the line `end`. Before each change it writes down what it is about to change, so that undo.sh can undo it whenever this was
# killed. Run again, it goes on: what stands is left as it is.
install_all() {
  set -euo pipefail
  export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
  umask 077
  cd /
  local record=/var/lib/krater-host name content complete='' step file mode unit state home missing
  declare -A given=()
  while read -r name content; do
    [ "$name" != end ] || { complete=yes; break; }
    given[$name]=$(base64 -d <<<"$content"; echo x)
    given[$name]=${given[$name]%x}
  done
  [ -n "$complete" ] || { echo 'the data is incomplete' >&2; return 1; }
  step=${given[step]}

  note() { # CHANGE: written down before it is made
    ! grep -qxF -- "$1" "$record/changes" || return 0
    echo "$1" >>"$record/changes"
    sync "$record/changes"
  }

  put() { # NAME PATH MODE
    note "file $2"
    printf %s "${given[$1]}" >"$2.new"
    chmod "$3" "$2.new"
    mv "$2.new" "$2"
  }

  folder() { # PATH MODE
    [ -d "$1" ] || { note "folder $1"; install -d -m "$2" "$1"; }
  }

  # The id of the host says whose it is. Before it is another installation's, or an earlier version's id of a controller.
  is_owner() { [ "$(sed 's/^.* //' "$record/owner")" = "${given[owner]##* }" ]; }

  # One that lost its controller may still be at work. The lock of a directory leaves nothing behind.
  exec 9</opt
  flock --wait 240 9 || { echo 'another enrolment of this host is still at work' >&2; return 1; }

  if [ "$step" = begin ]; then
    install -d -m 700 "$record"
    if [ ! -s "$record/owner" ]; then
      printf "%s\n" "${given[owner]}" >"$record/owner.new"
      sync "$record/owner.new"
      mv "$record/owner.new" "$record/owner"
      sync "$record"
    fi
    is_owner || { echo 'another controller has enrolled this host' >&2; return 1; }
    : >>"$record/changes"
    install -d -m 700 "$record/incoming" "$record/interfaces"
    (cd "$record/incoming" && sha256sum -- * 2>/dev/null) || true
    return 0
  fi

  is_owner
  (cd "$record/incoming" && sha256sum --quiet -c - <<<"${given[sums]}") >&2

  # Debian's packages would start these as services of the host.
  for unit in haproxy.service keepalived.service; do
    state=$(systemctl is-enabled "$unit" 2>/dev/null) || true
    [ "$state" != masked ] || continue
    note "masked $unit ${state:-absent}"
    systemctl --quiet mask "$unit" 2>/dev/null
  done
  missing=()
  while read -r name; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done <<<"${given[packages]}"
  # A kill may have left packages unpacked.
  dpkg --configure -a --force-confold >&2
  if [ ${#missing[@]} -gt 0 ]; then
    echo "installing ${missing[*]}" >&2
    local apt=(apt-get -q -o DPkg::Lock::Timeout=120 -o Dpkg::Options::=--force-confold)
    # Without a connection, the packages may still be there.
    timeout 300 "${apt[@]}" -o Acquire::Retries=1 update >&2 || true
    "${apt[@]}" -s --no-install-recommends install "${missing[@]}" | sed -nE 's/^Inst ([^ ]+) [^[].*$/\1/p' |
      while read -r name; do note "package ${name%%:*}"; done
    NEEDRESTART_SUSPEND=1 timeout 900 "${apt[@]}" -y --no-install-recommends install "${missing[@]}" >&2
  fi

  if ! getent passwd krater >/dev/null; then
    note 'account krater'
    useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin --user-group --comment 'Krater controllers' krater
  fi
  # An account without a password that is not locked: sshd refuses locked ones.
  usermod --password '*' krater

  folder /opt/krater 755
  folder /etc/krater 755
  for name in node agent.mjs; do
    file=/opt/krater/$name mode=755
    [ "$name" = node ] || mode=644
    note "file $file"
    cmp -s "$record/incoming/$name" "$file" || { cp "$record/incoming/$name" "$file.new"; chmod $mode "$file.new"; sync "$file.new"; mv "$file.new" "$file"; }
  done
  note 'tree /opt/krater/agents'
  for name in init.sh agent.sh management.sh host.sh forward.pl sysctl.conf; do put "$name" "/opt/krater/$name" 644; done
  put management-address /etc/management-address 644
  # With other interfaces than before, the amphora gives those of before back first: nobody else knows them.
  if [ -e /etc/krater/interfaces ] && [ -e /opt/krater/host.sh ] && ! cmp -s /etc/krater/interfaces <(printf %s "${given[interfaces]}"); then
    systemctl stop krater-amphora.service 2>/dev/null || true
    bash /opt/krater/host.sh leave >&2
  fi
  put interfaces /etc/krater/interfaces 644
  put controllers /etc/krater/controllers 644
  [ -e /etc/krater/boot.json ] || put boot /etc/krater/boot.json 600
  note 'file /etc/krater/boot.json'
  note 'file /etc/krater/boot.next.json'
  put controller-key /etc/krater/controller-key 644

  home=$(getent passwd "${given[user]}" | cut -d : -f 6)
  file=$home/.ssh/authorized_keys
  if ! grep -qsxF -- "${given[operator-key]}" "$file"; then
    [ -d "$home/.ssh" ] || { note "folder $home/.ssh"; install -d -m 700 -o "${given[user]}" "$home/.ssh"; }
    [ -e "$file" ] || { note "file-if-empty $file"; install -m 600 -o "${given[user]}" /dev/null "$file"; }
    note "line $file ${given[operator-key]}"
    [ ! -s "$file" ] || [ -z "$(tail -c 1 "$file")" ] || echo >>"$file"
    echo "${given[operator-key]}" >>"$file"
  fi

  note 'sshd'
  put sshd.conf /etc/ssh/sshd_config.d/00-krater.conf 644
  sshd -t >&2
  systemctl reload ssh.service >&2 || systemctl restart ssh.service >&2

  note 'service'
  put unit /etc/systemd/system/krater-amphora.service 644
  systemctl daemon-reload
  systemctl --quiet enable krater-amphora.service
  systemctl restart krater-amphora.service
  rm -rf "$record/incoming"
  cat "$record/changes"
}
install_all
