import { existsSync, readFileSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build, isBuilt } from './build.js'
import { fetchKernel, hasKernel } from './debian-kernel.js'
import {
  CLUSTER_PACKAGES,
  IMAGE_PACKAGES,
  installPackages,
  LAB_PACKAGES,
  LIBVIRT_PACKAGES,
  MACHINE_PACKAGES,
  missingPackages,
  OVN_PACKAGES,
  restorePolicy,
  SERVICE_PACKAGES,
  SUITE_PACKAGES,
  TEST_PACKAGES,
} from './debian-packages.js'
import { Failure, failureOf, runLogged, runScript, step } from './progress.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const logFile = join(root, 'prepare.log')

/**
 * Installs and builds only what is missing. Prints nothing if nothing is missing.
 * @param withTests also installs what the tests and benchmarks need
 * @param withMachine also installs what a virtual machine needs, and fetches its kernel
 * @param withEmulator also installs what a virtual machine with a kernel of its own needs
 * @param withLibvirt also installs libvirt, and what a virtual machine needs
 * @param withImages also installs what builds images, and the hosts that tests enroll
 * @param withOvn also installs OVN
 * @param withCluster also installs a replicated PostgreSQL
 * @param withSuites also installs the suites of other projects
 */
export async function prepare({
  withTests = false,
  withMachine = false,
  withEmulator = false,
  withLibvirt = false,
  withImages = false,
  withOvn = false,
  withCluster = false,
  withSuites = false,
} = {}) {
  checkMachine()
  const packages = [
    ...SERVICE_PACKAGES,
    ...(withTests ? [...TEST_PACKAGES, ...LAB_PACKAGES] : []),
    ...(withTests || withOvn ? OVN_PACKAGES : []),
    ...(withMachine || withEmulator || withLibvirt ? MACHINE_PACKAGES : []),
    ...(withLibvirt ? LIBVIRT_PACKAGES : []),
    ...(withImages ? IMAGE_PACKAGES : []),
    ...(withCluster ? CLUSTER_PACKAGES : []),
    ...(withSuites ? SUITE_PACKAGES : []),
  ]
  const missing = missingPackages(packages)
  const fresh = nodeModulesAreFresh(withTests)
  if (!fresh || missing.length > 0) rmSync(logFile, { force: true })
  if (missing.length > 0) {
    await step(`Debian packages (${missing.join(' ')})`, report => installPackages(missing, { logFile, report }))
  }
  if (!fresh) await step('npm packages', report => installNodeModules(withTests, report))
  if (withMachine && !hasKernel()) await step('Debian’s kernel', report => fetchKernel({ logFile, report }))
  if (!isBuilt()) await step('Build', build)
}

function checkMachine() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 19)) {
    throw new Failure(`Krater needs Node.js 20.19 or newer; this is ${process.version}.`)
  }
  if (process.platform !== 'linux') throw new Failure(`Krater runs on Linux only; this is ${process.platform}.`)
  if (process.getuid() !== 0) {
    throw new Failure(
      'Krater needs root: it creates network namespaces, runs PostgreSQL as the postgres account and installs Debian packages. Run the same command with sudo.',
    )
  }
}

function nodeModulesAreFresh(withTests) {
  // npm writes this file last, so an interrupted installation has none.
  const installed = join(root, 'node_modules/.package-lock.json')
  if (withTests && !hasTestPackages()) return false
  return existsSync(installed) && statSync(installed).mtimeMs >= statSync(join(root, 'package-lock.json')).mtimeMs
}

const hasTestPackages = () => existsSync(join(root, 'node_modules/tap/package.json'))

async function installNodeModules(withTests, report) {
  // Not `npm ci`: it rejects a lock file that lacks packages of platforms which the registry in use does not offer.
  // `npm install` uses the versions and checksums of the lock file, too, and with --no-save does not rewrite it.
  const retries = ['--fetch-retries=2', '--fetch-retry-mintimeout=500', '--fetch-retry-maxtimeout=2000']
  const args = ['install', '--no-save', '--no-audit', '--no-fund', '--loglevel=http', ...retries]
  // Omit what only the tests need, unless it is requested or already installed: never remove it.
  const all = withTests || hasTestPackages()
  const result = await runLogged('npm', all ? args : [...args, '--omit=dev'], {
    logFile,
    report,
    cwd: root,
    seconds: 600,
  })
  if (result.code !== 0) throw failureOf('npm install', result, logFile)
}

/** Whether the settings of the next start put networks in OVN. */
function usesOvn() {
  const { KRATER_NETWORK_DRIVER: driver, KRATER_STATE_DIR: directory = '/var/lib/krater' } = process.env
  if (driver !== undefined) return driver === 'ovn'
  const file = join(directory, 'krater.yaml')
  return existsSync(file) && /^network:\n(?: .*\n)*? +driver: ['"]?ovn\b/m.test(readFileSync(file, 'utf8'))
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  await runScript(async () => {
    restorePolicy()
    await prepare({ withOvn: usesOvn() })
  })
}
