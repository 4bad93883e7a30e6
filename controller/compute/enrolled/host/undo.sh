# Undoes what install.sh has changed, in reverse, as far as it is written down. Runs as root, from standard input; then the
# line with the host's id. It may be killed and run again. Prints `kept WHAT: WHY` for what stays.
undo_all() {
  set -uo pipefail
  export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
  umask 077
  cd /
  local record=/var/lib/krater-host host what rest path line packages=() left name why progress
  IFS= read -r host

  remove_folder() { # PATH
    rmdir "$1" 2>/dev/null || [ ! -d "$1" ] || echo "kept $1: it has files of others"
  }

  # An enrolment that lost its controller may still be at work. The lock of a directory leaves nothing behind.
  exec 9</opt
  flock --wait 240 9 || { echo 'an enrolment of this host is still at work' >&2; return 1; }
  [ -e "$record" ] || return 0
  # A kill right after the folder was made leaves it without an owner, and without any other change.
  # The id of the host says whose it is; what is before it may be an earlier version's id of a controller.
  [ ! -s "$record/owner" ] || [ "$(sed 's/^.* //' "$record/owner")" = "$host" ] || { echo 'another controller has enrolled this host' >&2; return 1; }
  [ -e "$record/changes" ] || { rm -rf "$record"; return 0; }
  # Those that install.sh was about to make when it was killed.
  while read -r what path rest; do [ "$what" != file ] || rm -f "$path.new"; done <"$record/changes"

  while IFS= read -r line; do
    read -r what path rest <<<"$line"
    case $what in
    service)
      systemctl --quiet disable --now krater-amphora.service 2>/dev/null
      if [ -e /opt/krater/host.sh ]; then
        bash /opt/krater/host.sh leave || { echo 'the amphora of this host does not end' >&2; return 1; }
      fi
      ;;
    sshd)
      rm -f /etc/ssh/sshd_config.d/00-krater.conf
      systemctl reload ssh.service || systemctl restart ssh.service
      ;;
    # The way in comes last: whoever goes on after a kill logs in by it.
    line | file-if-empty) ;;
    file)
      rm -f "$path"
      [[ $path != /etc/systemd/system/* ]] || systemctl daemon-reload
      ;;
    tree) rm -rf "$path" ;;
    folder) [[ $path == */.ssh ]] || remove_folder "$path" ;;
    account)
      # A killed process counts until its parent has noticed, and a controller may have been logging in.
      for _ in {1..50}; do
        pkill -KILL -u krater || break
        sleep 0.1
      done
      ! getent passwd krater >/dev/null || userdel krater || return 1
      ! getent group krater >/dev/null || groupdel krater || return 1
      ;;
    package) packages+=("$path") ;;
    masked) ;;
    esac
  done < <(tac "$record/changes")

  # dpkg itself refuses to remove what another package needs. So nothing goes but what was installed for this.
  dpkg --configure -a --force-confold >&2
  left=()
  for name in "${packages[@]-}"; do
    [ -n "$name" ] && [ -n "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -vx not-installed)" ] || continue
    why=
    ! pgrep -x "${name:0:15}" >/dev/null || why='it runs'
    [ -z "$(dpkg --verify "$name" 2>/dev/null | grep ' c ')" ] || why='its settings were changed'
    [ "$(systemctl is-enabled "$name.service" 2>/dev/null)" != enabled ] || why='it was enabled'
    if [ -n "$why" ]; then echo "kept the package $name: $why"; else left+=("$name"); fi
  done
  progress=yes
  while [ -n "$progress" ] && [ ${#left[@]} -gt 0 ]; do
    progress='' packages=("${left[@]}") left=()
    for name in "${packages[@]}"; do
      if dpkg --purge "$name" >/dev/null 2>&1; then progress=yes; else left+=("$name"); fi
    done
  done
  for name in "${left[@]-}"; do [ -z "$name" ] || echo "kept the package $name: another one needs it"; done

  while read -r what path rest; do
    [ "$what" = masked ] || continue
    systemctl --quiet unmask "$path"
    # The package's own script found it masked.
    [ "$rest" = enabled ] && systemctl --quiet enable "$path"
  done <"$record/changes"
  while IFS= read -r line; do
    read -r what path rest <<<"$line"
    case $what in
    line)
      [ -e "$path" ] || continue
      # Written in place: the file keeps its owner and mode, and is never without the other keys.
      { grep -vxF -- "$rest" "$path" || true; } >"$record/line"
      cmp -s "$record/line" "$path" || cat "$record/line" >"$path"
      ;;
    file-if-empty) [ -s "$path" ] || rm -f "$path" ;;
    folder) [[ $path != */.ssh ]] || remove_folder "$path" ;;
    esac
  done < <(tac "$record/changes")
  rm -rf "$record"
}
undo_all
