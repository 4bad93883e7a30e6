import { readFile, stat } from 'node:fs/promises'
import { readServerCertificate, UnusableCertificate } from '../../http/tls/server-certificate.js'
import { ConfigurationError } from '../../options/configuration-error.js'
import type { CertificateOrigin } from './origin.js'

/**
 * A certificate and its key in PEM files. Changed files are read once they have stayed the same for a second, because
 * the two are written one after the other. Follows symbolic links, which some clients of CAs exchange.
 * @throws ConfigurationError when they cannot be used at the start
 */
export async function certificateFromFiles(certificateFile: string, keyFile: string): Promise<CertificateOrigin> {
  const what = `api.tls.certificate_file (${certificateFile}) and api.tls.key_file (${keyFile})`
  let seen = await stateOf(certificateFile, keyFile)
  let used = seen
  const read = async () => {
    const [certificate, key] = await Promise.all([certificateFile, keyFile].map(readText))
    return readServerCertificate(certificate ?? '', key ?? '')
  }
  const first = await read().catch((error: Error) => {
    if (error instanceof UnusableCertificate)
      throw new ConfigurationError(`${what} cannot be used: ${error.message}. Correct the files or the settings.`)
    throw error
  })
  return {
    what,
    first,
    newer: async () => {
      const now = await stateOf(certificateFile, keyFile)
      const isSettled = now === seen
      seen = now
      if (now === used || !isSettled) return null
      const certificate = await read()
      used = now
      return certificate
    },
    intervalSeconds: 1,
    expires: true,
  }
}

async function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new UnusableCertificate(`${path} cannot be read (${error.code})`)
  })
}

/** Changes with the content of the files. */
async function stateOf(...paths: string[]): Promise<string> {
  const states = await Promise.all(
    paths.map(path =>
      stat(path).then(
        ({ dev, ino, size, mtimeMs }) => [dev, ino, size, mtimeMs].join(' '),
        (error: NodeJS.ErrnoException) => String(error.code),
      ),
    ),
  )
  return states.join('\n')
}
