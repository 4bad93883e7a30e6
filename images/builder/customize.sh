#!/bin/bash
# mmdebstrap runs this outside the new root, before it removes apt's lists:
#   customize.sh KERNEL_PACKAGE RECORDS ROOT
# Unpacks the kernel into ROOT without its package's scripts, which would make an initial file system with tools that an
# amphora does not need. Writes what the archive says of every package to RECORDS.
set -eu
kernel_package=$1 records=$2 root=$3
export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG

kernel=$(apt-cache depends "$kernel_package" | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
[ -n "$kernel" ] || { echo "$kernel_package depends on no kernel" >&2; exit 1; }
work=$(mktemp -d "$root/kernel.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
(cd "$work" && apt-get -o APT::Sandbox::User=root download "$kernel")
dpkg-deb --extract "$work"/*.deb "$work/unpacked"
modules=$work/unpacked/lib/modules
[ -d "$modules" ] || modules=$work/unpacked/usr/lib/modules
release=$(ls "$modules")
mkdir -p "$root/usr/lib/modules"
mv "$modules/$release" "$root/usr/lib/modules/"
mv "$work/unpacked/boot/vmlinuz-$release" "$root/boot/vmlinuz"
depmod --basedir "$root" "$release"
version=$(dpkg-deb --field "$work"/*.deb Version)

{
  dpkg-query --admindir "$root/var/lib/dpkg" --show --showformat '${Package}:${Architecture}=${Version}\n' |
    sed 's/:all=/=/'
  echo "$kernel=$version"
} | xargs apt-cache show --no-all-versions >"$records"
