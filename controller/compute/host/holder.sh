# What every script does that becomes the process which holds a machine: the machine ends when this process does.
# Files: 0 the boot data, 3 the machine's lock, 4 the pipe for reporting readiness, 5 and 7 the accounts' locks.

hold() { # MACHINE_DIRECTORY: takes the machine's lock and records this process
  local boot stat fields fd
  flock --nonblock 3 || { echo 'this machine is already running' >&2; exit 75; }

  # Only the holder of the lock writes this file, so it always names the process that holds the machine.
  read -r boot </proc/sys/kernel/random/boot_id
  read -r stat </proc/self/stat
  fields=(${stat##*) })
  echo "$$ ${fields[19]} $boot" >"$1/process.new"
  mv "$1/process.new" "$1/process"

  # Closes any other files inherited from the controller.
  for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    [ "$fd" -le 4 ] || [ "$fd" = 255 ] || exec {fd}>&- || true
  done
}

take_accounts() { # FIRST_ACCOUNT BLOCKS BLOCK: sets `accounts` to the first of eight consecutive uids and gids
  # They are reserved while the holder has their lock.
  local locks=/run/krater-accounts tried
  mkdir -p -m 700 "$locks"
  for ((tried = 0; ; tried++)); do
    [ "$tried" -lt "$2" ] || { echo 'all uids and gids for machines are in use' >&2; exit 1; }
    accounts=$(($1 + 8 * (($3 + tried) % $2)))
    # A machine created by an earlier version uses four, which may be the second half of these.
    exec 5>>"$locks/$accounts" 7>>"$locks/$((accounts + 4))"
    ! flock --nonblock 5 || ! flock --nonblock 7 || break
  done
}
