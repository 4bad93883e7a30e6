import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { isServed, STAPLE_SUFFIX } from '../protocol/tls.js'
import type { Manifest } from './files.js'
import type { Staples } from './plan-update.js'

/** The certificates that are presented to clients: content by path. */
export const servedCertificates = (directory: string, { files }: Manifest): Map<string, string> =>
  new Map(
    Object.keys(files)
      .filter(path => isServed(path) && existsSync(`${directory}/${path}`))
      .map(path => [path, readFileSync(`${directory}/${path}`, 'utf8')]),
  )

/**
 * Writes the OCSP responses of a directory of configuration beside its certificates, and deletes all others: HAProxy
 * refuses its configuration if there is one for a certificate without an issuer.
 */
export function writeStaples(
  directory: string,
  manifest: Manifest,
  stapleFor: (pem: string) => Buffer | null,
): Staples {
  const staples = new Map<string, Buffer>()
  for (const [path, pem] of servedCertificates(directory, manifest)) {
    const file = `${directory}/${path}${STAPLE_SUFFIX}`
    const staple = stapleFor(pem)
    if (staple === null) {
      rmSync(file, { force: true })
      continue
    }
    staples.set(path, staple)
    if (existsSync(file) && readFileSync(file).equals(staple)) continue
    writeFileSync(`${file}.new`, staple, { mode: 0o600 })
    renameSync(`${file}.new`, file)
  }
  return staples
}
