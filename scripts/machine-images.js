import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { failureOf, runLogged, step } from './progress.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/** Builds the image of an amphora. @throws Failure */
export const buildAmphoraImage = () => buildImage('Image of an amphora')

/** Builds the boxes of the lab. @throws Failure */
export const buildLabBoxes = () => buildImage('Boxes of the lab', 'lab')

/** Builds what `npm run images -- TARGET` builds; that takes seconds if nothing has changed since the last build. */
async function buildImage(what, ...target) {
  const logFile = join(root, 'images.log')
  const words = [join(root, 'scripts/images.js'), ...target]
  await step(what, async report => {
    const result = await runLogged(process.execPath, words, { logFile, report, seconds: 1200 })
    if (result.code !== 0) throw failureOf('npm run images', result, logFile)
  })
}
