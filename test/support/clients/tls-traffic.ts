import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { assemble } from '../../../x509/material/assemble.js'
import type { Material } from '../../../x509/material/material.js'
import { makePair, type Pair, type PairOptions } from '../inputs/certificates.js'
import { fileOf } from '../inputs/x509.js'

/** A CA that only the test trusts. */
export const root = makePair({ subject: '/CN=root of the test' })

/** A certificate of `root`, or of another issuer, for names: the first is its common name. */
export const certificateOf = (names: readonly [string, ...string[]], options: PairOptions = {}): Pair =>
  makePair({
    ...{ subject: `/CN=${names[0]}`, issuer: root },
    ...options,
    args: ['-addext', `subjectAltName=${names.map(name => `DNS:${name}`).join()}`, ...(options.args ?? [])],
  })

/** Stored material, as a key manager gives it out and the agent assembles it. */
export function keepMaterial() {
  const material = new Map<string, string>()
  const keep = (kind: 'secrets' | 'containers', content: Material): string => {
    const ref = `https://keys.example/v1/${kind}/${randomUUID()}`
    material.set(ref, assemble(content).pem)
    return ref
  }
  const from = (text: string) => Buffer.from(text)
  return {
    /** PEM by reference. */
    material,
    certificate: ({ certificate, privateKey }: Pair, more: { intermediates?: string; passphrase?: string } = {}) =>
      keep('containers', {
        kind: 'certificate',
        certificate: from(certificate),
        privateKey: from(privateKey),
        intermediates: more.intermediates === undefined ? null : from(more.intermediates),
        passphrase: more.passphrase === undefined ? null : from(more.passphrase),
      }),
    bundle: (bundle: Buffer) => keep('secrets', { kind: 'bundle', bundle }),
    authority: (pem: string) => keep('secrets', { kind: 'authority', authority: from(pem) }),
    revocationList: (pem: string, by: Pair) =>
      keep('secrets', { kind: 'revocation list', list: from(pem), authority: from(by.certificate) }),
  }
}

export type Handshake = {
  /** Null if it failed. */
  version: string | null
  cipher: string
  alpn: string | null
  /** Common names of the certificates that the server sent, the leaf first. */
  sent: string[]
  /** `rsa` or `ecdsa`, from the signature of the handshake. */
  signature: string
  output: string
}

/** A handshake by `openssl s_client`. @param args further arguments */
export async function shakeHands(port: number, name: string | null, args: string[] = []): Promise<Handshake> {
  const sni = name === null ? ['-noservername'] : ['-servername', name]
  const connect = ['s_client', '-connect', `127.0.0.1:${port}`, '-showcerts']
  const said = await runProgram('openssl', [...connect, ...sni, ...args])
  const output = said.output + said.errors
  const [, version = '(NONE)', cipher = ''] = /^New, (\S+), Cipher is (\S+)$/m.exec(output) ?? []
  // An alert may follow what OpenSSL takes for the end of a handshake.
  const failed = version === '(NONE)' || cipher === '(NONE)' || /SSL alert number/.test(output)
  return {
    version: failed ? null : version,
    cipher,
    alpn: /^ALPN protocol: (\S+)$/m.exec(output)?.[1] ?? null,
    sent: [...output.matchAll(/^ *\d+ s:.*?CN = (.*)$/gm)].map(([, subject = '']) => subject),
    signature: (/^Peer signature type: (\S+)$/m.exec(output)?.[1] ?? '').toLowerCase(),
    output,
  }
}

export type Fetched = {
  /** 0 without an answer. */
  status: number
  /** `1.1` or `2`. */
  version: string
  /** Lines of the head, with names in lower case. */
  head: string[]
  body: string
  error: string
}

/** A request by curl, which trusts `root` unless told otherwise. @param args further arguments */
export async function fetchByCurl(port: number, name: string, path = '/', args: string[] = []): Promise<Fetched> {
  const { output, errors } = await runProgram('curl', [
    ...['--silent', '--show-error', '--include', '--max-time', '10', '--cacert', fileOf(root.certificate)],
    ...['--connect-to', `::127.0.0.1:${port}`, ...args, `https://${name}${path}`],
  ])
  const [head = '', ...rest] = output.split('\r\n\r\n')
  const [, version = '', status = '0'] = /^HTTP\/(\S+) (\d+)/.exec(head) ?? []
  const lines = head.split('\r\n').slice(1)
  return {
    ...{ status: Number(status), version, body: rest.join('\r\n\r\n'), error: errors.trim() },
    head: lines.map(line => line.replace(/^[^:]+/, field => field.toLowerCase())),
  }
}

/** Values of a header. */
export const valuesOf = ({ head }: Fetched, name: string): string[] =>
  head.flatMap(line => (line.startsWith(`${name}: `) ? [line.slice(name.length + 2)] : []))

/** Arguments of curl that present a certificate. */
export const presenting = ({ certificate, privateKey }: Pair): string[] => [
  ...['--cert', fileOf(certificate), '--key', fileOf(privateKey)],
]

/** Runs a client that ends by itself, without input. @returns what it wrote */
export async function runProgram(
  file: string,
  args: string[],
  seconds = 20,
): Promise<{ output: string; errors: string }> {
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: seconds * 1000 })
  const started = new Promise<void>((resolve, reject) => child.once('spawn', resolve).once('error', reject))
  const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr), started])
  return { output, errors }
}
