import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Failure, failureOf, runLogged } from './progress.js'

/** Debian's kernel for virtual machines. The package depends on the one that contains the kernel. */
const PACKAGE = 'linux-image-cloud-amd64'
const cache = join(dirname(dirname(fileURLToPath(import.meta.url))), 'node_modules/.cache')
/** test/support/worlds/virtual-machine/ boots what is here. */
const directory = join(cache, 'debian-kernel')

export const hasKernel = () => existsSync(directory)

/**
 * Downloads the kernel's package and unpacks it into node_modules/.cache/debian-kernel: `boot/vmlinuz-RELEASE` and
 * `lib/modules/RELEASE`. Does not install it, because the machine would start with this kernel at its next boot.
 */
export async function fetchKernel({ logFile, report }) {
  mkdirSync(cache, { recursive: true })
  const work = mkdtempSync(join(cache, 'debian-kernel-'))
  const run = async (program, args, options = {}) => {
    const result = await runLogged(program, args, { logFile, report, seconds: 300, ...options })
    if (result.code !== 0) throw failureOf(`${program} ${args[0]}`, result, logFile)
    return result.tail
  }
  try {
    await run('apt-get', ['update'])
    const [, name] = /Depends: (linux-image-\S+)/.exec(await run('apt-cache', ['depends', PACKAGE])) ?? []
    if (name === undefined) throw new Failure(`${PACKAGE} depends on no kernel.`)
    await run('apt-get', ['download', name], { cwd: work })
    const [file] = readdirSync(work)
    const unpacked = join(work, 'unpacked')
    await run('dpkg-deb', ['--extract', join(work, file), unpacked])
    await run('depmod', ['--basedir', unpacked, name.replace('linux-image-', '')])
    rmSync(directory, { recursive: true, force: true })
    renameSync(unpacked, directory)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}
