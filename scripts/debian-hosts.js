import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ENROLMENT_PACKAGES, HOST_PACKAGES } from './debian-packages.js'
import { failureOf, runLogged, step } from './progress.js'

/** Versions of Debian that tests enroll hosts of. */
const SUITES = ['bookworm', 'trixie']
const root = dirname(dirname(fileURLToPath(import.meta.url)))
const directory = join(root, 'node_modules/.cache/debian-hosts')
const EXCLUDED = ['/usr/share/doc/*', '/usr/share/locale/*', '/usr/share/man/*']
/** Leaves what an enrolment installs in apt's cache: a host of the tests reaches no mirror. */
const FETCH = `rm -f "$1"/var/cache/apt/archives/*.deb
chroot "$1" apt-get -y --no-install-recommends --download-only install ${ENROLMENT_PACKAGES.join(' ')}`

const wordsFor = (suite, target) => [
  ...['--mode=root', '--variant=minbase', '--format=directory', '--skip=cleanup/apt'],
  `--include=${HOST_PACKAGES.join(',')}`,
  '--aptopt=Acquire::Languages "none"',
  '--aptopt=Acquire::Retries "3"',
  ...EXCLUDED.map(path => `--dpkgopt=path-exclude=${path}`),
  `--customize-hook=${FETCH}`,
  ...[suite, target, 'http://deb.debian.org/debian'],
]

/** A version of Debian with the place of its root file system, which changes with what is in it. */
const hosts = SUITES.map(suite => {
  const key = createHash('sha256')
    .update(JSON.stringify(wordsFor(suite, '')))
    .digest('hex')
    .slice(0, 8)
  return { suite, place: join(directory, `${suite}-${key}`) }
})

export const missingHosts = () => hosts.filter(({ place }) => !existsSync(place))

/**
 * Builds the root file system of a Debian host with systemd and sshd, which test/support/worlds/debian-host.ts starts, in
 * node_modules/.cache/debian-hosts/SUITE-KEY. Removes that of an earlier version of this script. Logs to host-SUITE.log.
 * @param signal stops it
 * @throws Failure
 */
export async function buildHost({ suite, place }, signal) {
  const logFile = join(root, `host-${suite}.log`)
  rmSync(logFile, { force: true })
  mkdirSync(directory, { recursive: true })
  for (const name of readdirSync(directory)) {
    if (name.startsWith(`${suite}-`)) rmSync(join(directory, name), { recursive: true, force: true })
  }
  const work = `${place}.new`
  // What mmdebstrap mounts is gone with it, even if it is stopped.
  const words = ['--mount', 'mmdebstrap', ...wordsFor(suite, work)]
  const build = async report => {
    const result = await runLogged('unshare', words, { logFile, report, signal, seconds: 1800 })
    if (result.code !== 0) throw failureOf(`mmdebstrap ${suite}`, result, logFile)
    renameSync(work, place)
  }
  await step(`A host with Debian ${suite}`, build, signal)
}
