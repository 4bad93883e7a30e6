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
export const TEST_PACKAGES = [
  'openssl',
  'python3-keystone',
  'python3-openstackclient',
  'python3-octaviaclient',
  'python3-barbicanclient',
  'python3-castellan',
  'python3-openstacksdk',
  'python3-oslo.messaging',
  'rabbitmq-server',
  'socat',
  'softhsm2',
]
export const BENCH_PACKAGES = ['nginx-light', 'wrk']

/** Units that these packages would have started at the next boot; ours run below `krater up` only. */
const UNITS_OF = {
  haproxy: ['haproxy'],
  keepalived: ['keepalived'],
  'openssh-server': ['ssh'],
  postgresql: ['postgresql'],
  nftables: ['nftables'],
  'nginx-light': ['nginx'],
  // Erlang's port mapper comes with it.
  'rabbitmq-server': ['rabbitmq-server', 'epmd'],
}

const FORMAT = `\${Package} \${db:Status-Status}\n`

/** Those of the packages that dpkg does not know as installed. */
export function missingPackages(packages) {
  const { stdout, error } = spawnSync('dpkg-query', ['-W', '-f', FORMAT, ...packages], {
    encoding: 'utf8',
    timeout: 20_000,
  })
  if (error !== undefined) {
    throw new Failure(
      `dpkg-query cannot be run (${error.message}): Krater installs what it needs on Debian 12 and its relatives. Elsewhere install by hand: ${packages.join(' ')}`,
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
 * Installs packages with one apt-get call. No service of theirs is started by the installation or enabled for the next boot; services
 * that were there before stay as they are.
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
    // Old package lists make the installation fail with "not found": the first reason is then the update's.
    throw update.code === 0
      ? failureOf('apt-get install', install, logFile)
      : failureOf('apt-get update', { ...update, tail: `${update.tail}\n${install.tail}` }, logFile)
  })
  const still = missingPackages(packages)
  if (still.length > 0)
    throw new Failure(`apt-get ended well, but these packages are not installed: ${still.join(' ')}`)
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
const KEPT = `${POLICY}.before-krater`
const MARK = '# made by krater while it installs packages'

/**
 * Runs `work` while Debian's packages may not start services (policy-rc.d). The former policy comes back afterwards, also on Ctrl-C; a
 * policy that a killed run left behind is taken away by the next one.
 */
async function withServicesHeldBack(newUnits, work) {
  restorePolicy()
  if (!forbidsStarting()) {
    if (isThere(POLICY)) renameSync(POLICY, KEPT)
    writeFileSync(POLICY, `#!/bin/sh\n${MARK}\nexit 101\n`)
    chmodSync(POLICY, 0o755)
  }
  // apt-get, in the same process group, hears Ctrl-C as well and ends; its end goes the way of every failure.
  const wait = () => undefined
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, wait)
  try {
    await work()
  } finally {
    disableAtBoot(newUnits)
    restorePolicy()
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.removeListener(signal, wait)
  }
}

/** Takes away a policy of ours, whoever left it, and puts back the one that was there before. */
export function restorePolicy() {
  if (isThere(POLICY) && !lstatSync(POLICY).isSymbolicLink() && readFileSync(POLICY, 'utf8').includes(MARK))
    rmSync(POLICY)
  if (isThere(KEPT) && !isThere(POLICY)) renameSync(KEPT, POLICY)
}

function isThere(path) {
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
