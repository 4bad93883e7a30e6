import { spawnSync } from 'node:child_process'
import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import {
  authorityExtensions,
  endEntityExtensions,
} from '../../../controller/key-manager/certificate-authorities/internal/profiles.js'
import { randomSerial, readCaCertificate, writeCertificate } from '../../../x509/certificate.js'
import { readCertificateRequest } from '../../../x509/certificate-request.js'
import type { Asn1 } from '../../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import type { GeneralName } from '../../../x509/encoding/general-names.js'
import { encodeName } from '../../../x509/encoding/name-encoding.js'
import { encodePem } from '../../../x509/encoding/pem.js'
import { InvalidX509 } from '../../../x509/invalid-x509.js'
import { publicKeyOf } from '../../../x509/public-key.js'

const directory = mkdtempSync(join(tmpdir(), 'krater-x509-'))
t.teardown(() => rmSync(directory, { recursive: true, force: true }))

let files = 0

/** A new file with this content, for a command's arguments. */
export function fileOf(content: string | Buffer): string {
  const path = join(directory, String(++files))
  writeFileSync(path, content)
  return path
}

/** Runs Debian's openssl. */
export function openssl(args: string[], input?: string | Buffer): { status: number | null; text: string } {
  const { status, stdout, stderr } = spawnSync('openssl', args, { input, encoding: 'utf8', timeout: 20_000 })
  return { status, text: stdout + stderr }
}

const MAKERS = {
  'RSA 2048': () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  'RSA 4096': () => generateKeyPairSync('rsa', { modulusLength: 4096 }),
  'P-256': () => generateKeyPairSync('ec', { namedCurve: 'prime256v1' }),
  'P-384': () => generateKeyPairSync('ec', { namedCurve: 'secp384r1' }),
  'P-521': () => generateKeyPairSync('ec', { namedCurve: 'secp521r1' }),
}

type Kind = keyof typeof MAKERS

export const KINDS = ['RSA 2048', 'RSA 4096', 'P-256', 'P-384', 'P-521'] as const satisfies readonly Kind[]

const made = new Map<Kind, KeyObject>()

/** A private key; the same one for the same kind. */
export function keyOf(kind: Kind): KeyObject {
  const key = made.get(kind) ?? MAKERS[kind]().privateKey
  made.set(kind, key)
  return key
}

export const DAY = 86_400_000
const validity = () => ({ notBefore: new Date(Date.now() - 60_000), notAfter: new Date(Date.now() + 30 * DAY) })

export type Authority = { key: KeyObject; pem: string }

/** A CA with its certificate. @param parent null for a root @param constraints its extension of name constraints */
export function authority(
  name: string,
  key: KeyObject,
  pathLength: number,
  parent: Authority | null,
  constraints: readonly Asn1[] = [],
): Authority {
  const publicKey = publicKeyOf(key)
  const above = parent === null ? null : readCaCertificate(parent.pem)
  const subject = encodeName(parseDistinguishedName(name))
  const issuer = above === null ? null : { keyIdentifier: above.keyIdentifier, crlUrl: 'http://ca.test/crl/1.crl' }
  const der = writeCertificate(
    {
      ...validity(),
      serial: randomSerial(),
      issuer: above?.subject ?? subject,
      subject,
      publicKey,
      extensions: authorityExtensions(publicKey, pathLength, issuer, constraints),
    },
    parent?.key ?? key,
  )
  return { key, pem: encodePem('CERTIFICATE', der) }
}

/** PEM of a certificate for a request. */
export function issue(request: Buffer, issuer: Authority, serial = randomSerial()): string {
  const own = readCaCertificate(issuer.pem)
  const read = readCertificateRequest(request)
  const der = writeCertificate(
    {
      ...validity(),
      serial,
      issuer: own.subject,
      subject: read.encodedSubject,
      publicKey: read.publicKey,
      extensions: endEntityExtensions(read, { keyIdentifier: own.keyIdentifier, crlUrl: 'http://ca.test/crl/2.crl' }),
    },
    issuer.key,
  )
  return encodePem('CERTIFICATE', der)
}

export const NAMES: GeneralName[] = [
  { kind: 'dns', value: 'www.example.com' },
  { kind: 'dns', value: '*.example.com' },
  { kind: 'ip', value: '192.0.2.7' },
  { kind: 'ip', value: '2001:db8::7' },
  { kind: 'email', value: 'web@example.com' },
  { kind: 'uri', value: 'https://example.com/a?b=c' },
]
export const SUBJECT = 'CN=www.example.com,O=Müller & Söhne\\, Köln,C=DE'

/** The message of a refusal; 'accepted' without one. Any other error is thrown. */
export const refusal = (body: () => unknown): string => {
  try {
    body()
    return 'accepted'
  } catch (error) {
    if (error instanceof InvalidX509) return error.message
    throw error
  }
}
