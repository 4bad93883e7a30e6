#!/bin/busybox sh
# First program of the virtual machine, in the initial file system. Mounts the host's directories where the host has
# them, and starts first-process.sh in a root in memory.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
while read -r module; do insmod "/modules/$module"; done </modules/order

mount -t tmpfs -o mode=755,size=75% root /root
cd /root
mkdir -p usr dev proc sys run lib tmp mnt root home var/log var/lib
chmod 1777 tmp
chmod 700 root
while read -r tag path; do
  mkdir -p ".$path"
  mount -t virtiofs -o ro "$tag" ".$path"
done </shares
for name in bin sbin lib64; do ln -s "usr/$name" "$name"; done
# Not a link to /usr/lib, which has no modules of this kernel.
for path in usr/lib/*; do ln -s "/$path" lib/; done
rm -f lib/modules
read -r modules </modules/path
ln -s "$modules" lib/modules
cp -a /etc /first-process.sh .

umount /proc
mount -o move /dev dev
exec switch_root /root /bin/bash /first-process.sh
