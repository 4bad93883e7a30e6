import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, lstatSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { Failure, failureOf, runLogged } from './progress.js'

export const SERVICE_PACKAGES = [
  'haproxy',
  'keepalived',
  'openssh-server',
  'openssh-client',
  'postgresql',
  'nftables',
  'conntrack',
  'iproute2',
  'iputils-ping',
  'perl-base',
  'procps',
  'util-linux',
]
/** An OVN of this host's own. */
export const OVN_PACKAGES = ['ethtool', 'openvswitch-switch', 'ovn-central', 'ovn-host']
/** Those of the benchmarks too: a test runs one. */
export const TEST_PACKAGES = [
  'caddy',
  'certbot',
  'cpio',
  'crun',
  'curl',
  'dnsperf',
  'knot',
  'knot-dnsutils',
  'nginx-light',
  'openssl',
  'pebble',
  'prometheus',
  'python3-barbican',
  'python3-keystone',
  'python3-openstackclient',
  'python3-octaviaclient',
  'python3-barbicanclient',
  'python3-castellan',
  'python3-grpcio',
  'python3-openstacksdk',
  'python3-oslo.messaging',
  'rabbitmq-server',
  'socat',
  'softhsm2',
  'sslscan',
  'testssl.sh',
  'wrk',
]
/** What builds the images of amphorae. */
export const IMAGE_PACKAGES = ['e2fsprogs', 'grub-pc-bin', 'kmod', 'mmdebstrap', 'qemu-utils', 'xz-utils']
/** Those of a virtual machine, for a suite and a benchmark. */
export const MACHINE_PACKAGES = ['busybox-static', 'kmod', 'qemu-system-x86']
/** Those of a host that tests enroll, beside the essential ones. */
export const HOST_PACKAGES = [
  ...['ca-certificates', 'dbus', 'iproute2', 'libpam-systemd', 'openssh-server', 'procps', 'sudo', 'systemd-sysv'],
]
/** What an enrolment installs on a host; controller/compute/enrolled/enrolment/install.ts names them. */
export const ENROLMENT_PACKAGES = ['conntrack', 'haproxy', 'iputils-ping', 'keepalived', 'nftables', 'procps']
/** What checks the Vagrantfile; docs/lab.md has what runs the lab. */
export const LAB_PACKAGES = ['vagrant']
/** What scripts/with-libvirt.sh runs, beside those of a virtual machine. */
export const LIBVIRT_PACKAGES = ['dnsmasq-base', 'libvirt-clients', 'libvirt-daemon-system']
/** A replicated PostgreSQL. */
export const CLUSTER_PACKAGES = ['etcd-server', 'patroni', 'python3-etcd']
/** Other projects' suites, which test/suites/ runs. */
export const SUITE_PACKAGES = [
  'ansible',
  'barbican-tempest-plugin',
  'chromium',
  'golang-github-gophercloud-gophercloud-dev',
  'golang-go',
  'octavia-tempest-plugin',
  'openstack-dashboard',
  'python3-octavia-dashboard',
  'python3-requests-mock',
  'tempest',
]

/** Units that these packages would start at the next boot. Krater runs these programs itself. */
const UNITS_OF = {
  haproxy: ['haproxy'],
  keepalived: ['keepalived'],
  'openssh-server': ['ssh'],
  postgresql: ['postgresql'],
  patroni: ['patroni'],
  'etcd-server': ['etcd'],
  prometheus: ['prometheus'],
  nftables: ['nftables'],
  'libvirt-daemon-system': ['libvirtd', 'virtlogd', 'virtlockd', 'libvirt-guests'],
  'nginx-light': ['nginx'],
  'openvswitch-switch': ['openvswitch-switch', 'ovs-record-hostname'],
  'ovn-central': ['ovn-central'],
  'ovn-host': ['ovn-host'],
  caddy: ['caddy'],
  knot: ['knot'],
  // It brings Erlang's port mapper.
  'rabbitmq-server': ['rabbitmq-server', 'epmd'],
}

const FORMAT = `\${Package} \${db:Status-Status}\n`

/** The packages that are not installed, according to dpkg. */
export function missingPackages(packages) {
  const { stdout, error } = spawnSync('dpkg-query', ['-W', '-f', FORMAT, ...packages], {
    encoding: 'utf8',
    timeout: 20_000,
  })
  if (error !== undefined) {
    throw new Failure(
      `Cannot run dpkg-query (${error.message}). Krater installs its packages only on Debian 12 and its relatives. Elsewhere, install these yourself: ${packages.join(' ')}`,
    )
  }
  const installed = new Set(
    stdout
      .split('\n')
      .filter(line => line.endsWith(' installed'))
      .map(line => line.split(' ')[0]),
  )
  return packages.filter(name => !installed.has(name))
}

/**
 * Installs packages with one apt-get call. Neither starts their services nor enables them for the next boot.
 * Services that were installed before stay unchanged.
 */
export async function installPackages(packages, { logFile, report }) {
  const apt = (args, seconds) =>
    runLogged('apt-get', ['-o', 'DPkg::Lock::Timeout=120', ...args], {
      logFile,
      report,
      seconds,
      env: {
        DEBIAN_FRONTEND: 'noninteractive',
        NEEDRESTART_SUSPEND: '1',
        APT_LISTCHANGES_FRONTEND: 'none',
        LC_ALL: 'C.UTF-8',
      },
    })
  const newUnits = packages.flatMap(name => UNITS_OF[name] ?? []).filter(unit => !isKnown(unit))
  await withServicesHeldBack(newUnits, async () => {
    const update = await apt(['update'], 300)
    const install = await apt(
      ['install', '-y', '--no-install-recommends', '-o', 'Dpkg::Options::=--force-confold', ...packages],
      900,
    )
    if (install.code === 0) return
    // With old package lists, the installation fails with "not found": report the failed update as the cause.
    throw update.code === 0
      ? failureOf('apt-get install', install, logFile)
      : failureOf('apt-get update', { ...update, tail: `${update.tail}\n${install.tail}` }, logFile)
  })
  const still = missingPackages(packages)
  if (still.length > 0) throw new Failure(`apt-get succeeded, but these packages are not installed: ${still.join(' ')}`)
}

const isKnown = unit => existsSync(`/etc/init.d/${unit}`) || existsSync(`/lib/systemd/system/${unit}.service`)

function disableAtBoot(units) {
  for (const unit of units.filter(isKnown)) {
    if (existsSync('/run/systemd/system'))
      spawnSync('systemctl', ['disable', unit], { timeout: 20_000, stdio: 'ignore' })
    else spawnSync('update-rc.d', [unit, 'disable'], { timeout: 20_000, stdio: 'ignore' })
  }
}

const POLICY = '/usr/sbin/policy-rc.d'
const SAVED_POLICY = `${POLICY}.before-krater`
const MARK = '# made by krater while it installs packages'

/**
 * Runs `work` with a policy-rc.d that forbids Debian's packages to start services. Restores the former policy
 * afterwards, also on Ctrl-C. After a kill, the next run restores it.
 */
async function withServicesHeldBack(newUnits, work) {
  restorePolicy()
  if (!forbidsStarting()) {
    if (pathExists(POLICY)) renameSync(POLICY, SAVED_POLICY)
    writeFileSync(POLICY, `#!/bin/sh\n${MARK}\nexit 101\n`)
    chmodSync(POLICY, 0o755)
  }
  // Ctrl-C also reaches apt-get, in the same process group. It exits, which is then handled like any other failure.
  const ignore = () => undefined
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, ignore)
  try {
    await work()
  } finally {
    disableAtBoot(newUnits)
    restorePolicy()
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.removeListener(signal, ignore)
  }
}

/** Removes a policy that this or an earlier run created, and restores the one from before. */
export function restorePolicy() {
  if (pathExists(POLICY) && !lstatSync(POLICY).isSymbolicLink() && readFileSync(POLICY, 'utf8').includes(MARK))
    rmSync(POLICY)
  if (pathExists(SAVED_POLICY) && !pathExists(POLICY)) renameSync(SAVED_POLICY, POLICY)
}

function pathExists(path) {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined
}

function forbidsStarting() {
  if (!existsSync(POLICY)) return false
  try {
    execFileSync(POLICY, ['haproxy', 'start'], { timeout: 10_000, stdio: 'ignore' })
    return false
  } catch (error) {
    return error.status === 101
  }
}
