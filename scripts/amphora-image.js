import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { failureOf, runLogged, step } from './progress.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/**
 * Builds the image of an amphora; that takes seconds if nothing has changed since the last build.
 * @throws Failure
 */
export async function buildAmphoraImage() {
  const logFile = join(root, 'images.log')
  const words = [join(root, 'scripts/images.js')]
  await step('Image of an amphora', async report => {
    const result = await runLogged(process.execPath, words, { logFile, report, seconds: 900 })
    if (result.code !== 0) throw failureOf('npm run images', result, logFile)
  })
}
