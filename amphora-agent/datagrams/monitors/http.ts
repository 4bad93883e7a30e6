import type { DatagramMonitor } from '../../protocol/datagrams.js'

type HttpMonitor = NonNullable<DatagramMonitor['http']>

/** The request of a probe. The protocol's schema keeps blanks and line ends out of it. */
export function requestText({ method, path, version, host }: HttpMonitor, address: string, port: number): string {
  const authority = `${address.includes(':') ? `[${address}]` : address}:${port}`
  return `${method} ${path} HTTP/${version}\r\nHost: ${host ?? authority}\r\nConnection: close\r\n\r\n`
}

/** Reads the status line of an answer (RFC 9112, section 4). @returns null if it does not begin with one */
export function statusOf(answer: Buffer): number | null {
  const [, code] = /^HTTP\/1\.[01] ([1-5]\d\d)(?: [^\r\n]*)?\r?\n/.exec(answer.toString('latin1')) ?? []
  return code === undefined ? null : Number(code)
}

/** Whether a status is one of `200`, `200, 202` or `200-204`. */
export const isExpected = (status: number, codes: string): boolean =>
  codes.split(',').some(part => {
    const [first = 0, last = first] = part.split('-').map(Number)
    return first <= status && status <= last
  })
