import { X509Certificate } from 'node:crypto'

/** One file as HAProxy has loaded it. */
export type LoadedFile = {
  /** SHA-1 of each certificate in it that HAProxy shows, in its order; of a chain, only that of the first. */
  fingerprints: string[]
  /** How many certificates follow the first in its chain. */
  chainLength: number
}

/** The commands that show what HAProxy has loaded, and the reader of their answers. */
export const SHOW = {
  cert: (path: string) => `show ssl cert ${path}`,
  'ca-file': (path: string) => `show ssl ca-file ${path}`,
  list: (path: string) => `show ssl crt-list -n ${path}`,
}

/** The commands that show the files of each kind, and before them the one that a transaction is open for. */
export const SHOW_ALL = { cert: 'show ssl cert', 'ca-file': 'show ssl ca-file', 'crl-file': 'show ssl crl-file' }

/** The file that a transaction is open for, by the answer to a command of `SHOW_ALL`. */
export const openTransaction = (answer: string): string | null => /^\*(\S+)/m.exec(answer)?.[1] ?? null

/** The answer to `show ssl cert` or `show ssl ca-file`. */
export const parseLoaded = (answer: string): LoadedFile => ({
  fingerprints: [...answer.matchAll(/^SHA1 FingerPrint: ([0-9A-F]{40})$/gm)].map(([, hex = '']) => hex.toLowerCase()),
  chainLength: answer.match(/^Chain Subject: /gm)?.length ?? 0,
})

/** Whether HAProxy has loaded what it should. It shows the certificates of a CA file once each, in OpenSSL's order. */
export const isSame = (loaded: LoadedFile, expected: LoadedFile): boolean => {
  const [seen, desired] = [new Set(loaded.fingerprints), new Set(expected.fingerprints)]
  return (
    loaded.chainLength === expected.chainLength &&
    seen.size === desired.size &&
    [...seen].every(one => desired.has(one))
  )
}

/** Whether HAProxy has a certificate, by the answer to `show ssl cert`, but serves it nowhere. */
export const isUnused = (answer: string): boolean => /^Status: Unused$/m.test(answer)

/** The certificates of a list by their names, in the answer to `show ssl crt-list -n`. */
export const parseList = (answer: string): string[] =>
  answer
    .split('\n')
    .map(line => /^(tls\/\S+\.pem):\d+/.exec(line)?.[1])
    .filter(path => path !== undefined)

/** What HAProxy shows once it has loaded this content. @param isChain whether the certificates are one chain */
export function expectedOf(pem: string, isChain: boolean): LoadedFile {
  const certificates = [...pem.matchAll(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g)].map(
    ([block]) => new X509Certificate(block),
  )
  const fingerprints = certificates.map(({ fingerprint }) => fingerprint.replaceAll(':', '').toLowerCase())
  return isChain
    ? { fingerprints: fingerprints.slice(0, 1), chainLength: fingerprints.length - 1 }
    : { fingerprints, chainLength: 0 }
}
