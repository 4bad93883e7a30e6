#!/bin/bash
# mmdebstrap runs this outside the new root, after its packages are configured: customize.sh ROOT
# Adds Vagrant's account, and leaves out what would start by itself or differ between two builds.
set -eu
root=$1
inside() { chroot "$root" "$@"; }

inside useradd --create-home --shell /bin/bash --password '*' vagrant
install -d -m 700 -o 1000 -g 1000 "$root/home/vagrant/.ssh"

inside systemctl --quiet enable systemd-networkd.service ssh.service
# Krater runs these programs itself.
inside systemctl --quiet disable haproxy.service keepalived.service nftables.service postgresql.service
for unit in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim; do
  inside systemctl --quiet mask "$unit.timer"
done
# Machines boot faster without these; nothing here waits for them.
inside systemctl --quiet mask e2scrub_reap.service systemd-networkd-wait-online.service getty@tty1.service

inside pg_lsclusters --no-header | while read -r version name _; do
  inside pg_dropcluster "$version" "$name" </dev/null
done
rm -f "$root"/etc/ssl/private/ssl-cert-snakeoil.key "$root"/etc/ssl/certs/ssl-cert-snakeoil.pem

# Whatever times the files get, Python finds its compiled modules up to date.
inside sh -c 'python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3*' >/dev/null
