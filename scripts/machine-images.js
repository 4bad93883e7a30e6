import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildHost, missingHosts } from './debian-hosts.js'
import { beside, failureOf, runLogged, step } from './progress.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/** The target of `npm run images`, its log, and what it makes. */
const AMPHORA = { target: 'amphora', log: 'images.log', what: 'Image of an amphora' }
const LAB = { target: 'lab', log: 'boxes.log', what: 'Boxes of the lab' }
/** A build that is told to stop gives its own programs some time for that. */
const GRACE_SECONDS = 30

/**
 * Builds beside each other, as each spends most of its time in programs that use one processor: the hosts that tests
 * enroll, unless they are there, the image of an amphora, and the boxes of the lab. prepare() comes first, withImages.
 * @param signal stops all
 * @throws Failure the first one, after all builds have ended
 */
export async function buildMachines({ hosts = false, image = false, boxes = false }, signal) {
  const wanted = [...(image ? [AMPHORA] : []), ...(boxes ? [LAB] : [])]
  await beside(signal, [
    ...wanted.map(made => stop => buildImage(made, stop)),
    ...(hosts ? missingHosts() : []).map(host => stop => buildHost(host, stop)),
  ])
}

/** Builds what `npm run images -- TARGET` builds; that takes seconds if nothing has changed since the last build. */
async function buildImage({ target, log, what }, signal) {
  const logFile = join(root, log)
  // What its mmdebstrap mounts is gone with it, even if it is stopped.
  const words = ['--mount', process.execPath, join(root, 'scripts/images.js'), target]
  const options = { logFile, signal, seconds: 2400, grace: GRACE_SECONDS }
  const build = async report => {
    const result = await runLogged('unshare', words, { ...options, report })
    if (result.code !== 0) throw failureOf(`npm run images -- ${target}`, result, logFile)
  }
  await step(what, build, signal)
}
